"""The class of a server's error by its status and its words: one table for every protocol.

    words                             statuses              error               breaker  retry      fallback
    prompt too long                   of the request        ContextTooLong      no       no         own class
    credit, balance, quota            402, 429; 400, 403    AccountRefused      rest; no elsewhere  capacity
    input refused, moderation         403, 451; caller's    ContentRefused      no       no         own class
    too large for a limit of rate     429                   AccountRefused      no       elsewhere  capacity
    country, region                   403                   CallerError         no       no         no
    a model, its access               400, 403, 404         upstream_model_…    yes      yes        backend
    –                                 401, other 403        upstream_credential yes      yes        backend
    –                                 404                   upstream_path_…     yes      yes        backend
    try again                         409, 425              CapacityError       no       yes        capacity
    –                                 429, 498, 503, 529    CapacityError       rest     yes        capacity
    –                                 408, 504, 522, 524    UpstreamTimeout     yes      yes        timeout
    –                                 520 to 527, 530       TransportError      yes      yes        transport
    –                                 400, 409, 422 …       CallerError         no       no         no
    –                                 500, 424              ServerFailed        yes      yes        backend
    –                                 others                BackendError        yes      yes        backend

Some servers have no status (an event of a stream, an error in a 200), or one that says less than the error's own type
(AWS): there the type, or the code, decides as a status would. A model that the client has named is the client's own
error (`by_client`).
"""

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from adapters.errors import (
    AccountRefused,
    BackendError,
    CallerError,
    CapacityError,
    ContentRefused,
    ContextTooLong,
    InferenceError,
    NotFound,
    NotThere,
    Scope,
    TooLarge,
    TransportError,
    UpstreamTimeout,
)
from adapters.wire import decoding, failure_text

# Decodes the errors of servers, in any of their formats.
#
# Nested (OpenAI, vLLM from 0.10 on, llama.cpp), in a list (Gemini), flat (SGLang, TensorRT-LLM, older vLLMs, Mistral),
# a text (Ollama's own, TGI, xAI), FastAPI's `detail`, a text or a list of fields, AWS's `__type`, and plain text. Some
# gateways have the error of the server behind them as JSON within a message, or as `metadata.raw` (OpenRouter).

MAX_FIELDS = 5
"""Reported fields at most."""
MAX_TEXT = 2_000
"""Characters of a plain text at most."""
MAX_DEPTH = 3
"""Errors within errors at most."""
MAX_INNER = 8 * 1024
"""Bytes of a filter's verdict at most."""


class ErrorBody(msgspec.Struct):
    """OpenAI's four keys, all optional; `code` is a string or a number."""

    message: str | None = None
    type: str | None = None
    param: str | None = None
    code: str | int | None = None
    inner: dict[str, Any] | None = None
    """Azure's `innererror`: the verdict of its filter of content."""


_decode = msgspec.json.Decoder().decode
_encode = msgspec.json.Encoder().encode


def decode_error(body: bytes, depth: int = 0) -> ErrorBody:
    """Decode the error in a body; empty without an error, and for a page of HTML."""
    try:
        decoded = _decode(body)
    except decoding.MALFORMED_JSON:
        return ErrorBody(_of_text(body))
    if isinstance(decoded, str):
        return ErrorBody(_text_or_none(decoded))
    if isinstance(decoded, list):
        decoded = decoded[0] if decoded else None
    if not isinstance(decoded, dict):
        return ErrorBody()
    error = decoded.get("error")
    if error is None and isinstance(decoded.get("errors"), list):
        error = next(iter(decoded["errors"]), None)
    if isinstance(error, dict):
        return _of_object(error, depth)
    if isinstance(error, str):
        rest = _of_object(decoded, depth)
        return ErrorBody(error or rest.message, rest.type, rest.param, rest.code)
    return ErrorBody() if error is not None else _of_object(decoded, depth)


def _of_text(body: bytes) -> str | None:
    """A text that is no page and no damaged JSON."""
    try:
        text = body[:MAX_TEXT].decode().strip()
    except UnicodeDecodeError:
        return None
    return None if not text or text[0] in "<{[" else text


def _of_object(body: dict[str, Any], depth: int) -> ErrorBody:
    message, param = _message_of(body.get("message", body.get("Message")), depth)
    if message is None:
        message, param = _message_of(body.get("detail"), depth)
    metadata = body.get("metadata")
    if depth < MAX_DEPTH and isinstance(metadata, dict) and (raw := _text_or_none(metadata.get("raw"))):
        inner = decode_error(raw.encode("utf-8", "replace"), depth + 1).message or raw[:MAX_TEXT]
        message = f"{message}: {inner}" if message else inner
    code = body.get("code", body.get("error_code"))  # Databricks'
    error_code = code if isinstance(code, str | int) and not isinstance(code, bool) else None
    kind = _text_or_none(body.get("type")) or _text_or_none(body.get("status"))
    if kind is None and (kind := _text_or_none(body.get("__type"))) is not None:
        kind = kind.rpartition("#")[2]
    verdict = body.get("innererror")
    verdict = verdict if isinstance(verdict, dict) and len(_encode(verdict)) <= MAX_INNER else None
    return ErrorBody(message, kind, _text_or_none(body.get("param")) or param, error_code, verdict)


def _message_of(value: Any, depth: int) -> tuple[str | None, str | None]:
    """The message, and the field at fault."""
    if isinstance(value, str) and value.startswith("{") and depth < MAX_DEPTH:
        inner = decode_error(value.encode("utf-8", "replace"), depth + 1)
        return inner.message or value, inner.param
    if isinstance(value, dict):
        return _message_of(value.get("detail", value.get("message")), depth)
    if isinstance(value, list):
        return _of_list(value)
    return _text_or_none(value), None


def _of_list(value: list[Any]) -> tuple[str | None, str | None]:
    """Read pydantic's list of errors: `loc` begins with the part of the request."""
    messages: list[tuple[str, str]] = []
    for each in value[:MAX_FIELDS]:
        if isinstance(each, dict) and (message := _text_or_none(each.get("msg"))):
            place = each.get("loc")
            steps = [str(step) for step in place if step != "body"] if isinstance(place, list) else []
            messages.append((".".join(steps), message))
    if not messages:
        return None, None
    return "; ".join(f"{path}: {message}" if path else message for path, message in messages), messages[0][0] or None


def _text_or_none(value: Any) -> str | None:
    return value if isinstance(value, str) else None


MAX_MESSAGE = 2_000
CALLER_STATUS = frozenset({400, 405, 409, 411, 413, 415, 416, 422, 451})
"""Statuses that blame the request; the body holds the reason."""
UNKNOWN_MODEL = "upstream_model_not_found"
REFUSED = "The upstream refused the request."

_FULL = frozenset({429, 498, 503, 529})  # 498: Groq, if its flexible tier is full
_SLOW = frozenset({408, 504, 522, 524})
_UNREACHABLE = frozenset({*range(520, 528), 530})
"""Statuses of content delivery networks, which have no answer of the server."""
_OWN_FAILURE = frozenset({424, 500})
"""Statuses by which a server reports its own failure. 424: TGI, for a generation that fails."""

STATUS_OF = {
    "invalid_request_error": 400, "BadRequestError": 400, "INVALID_ARGUMENT": 400, "ValidationException": 400,
    "authentication_error": 401, "invalid_api_key": 401, "UNAUTHENTICATED": 401, "AuthenticationError": 401,
    "UnrecognizedClientException": 401, "ExpiredTokenException": 401, "billing_error": 402, "insufficient_quota": 402,
    "permission_error": 403, "PERMISSION_DENIED": 403, "AccessDeniedException": 403, "PermissionDeniedError": 403,
    "not_found_error": 404, "NOT_FOUND": 404, "NotFoundError": 404, "model_not_found": 404, "invalid_model": 404,
    "ResourceNotFoundException": 404, "timeout_error": 408, "DEADLINE_EXCEEDED": 408, "ModelTimeoutException": 408,
    "request_too_large": 413, "rate_limit_error": 429, "rate_limit_exceeded": 429, "RESOURCE_EXHAUSTED": 429,
    "RateLimitError": 429, "ThrottlingException": 429, "TooManyRequestsException": 429, "api_error": 500,
    "server_error": 500, "INTERNAL": 500, "InternalServerException": 500, "overloaded_error": 529, "UNAVAILABLE": 503,
    "content_filter": 400, "ServiceUnavailableException": 503, "service_unavailable": 503, "server_overloaded": 503,
    "ModelErrorException": 424, "ModelStreamErrorException": 424, "ModelNotReadyException": 429,
    "ServiceQuotaExceededException": 429,
}  # fmt: skip
"""The statuses that types and codes of errors stand for."""

_ACCOUNT = re.compile(
    r"\binsufficient[_ ](quota|balance|credits?|funds)|credit balance|\bbilling|requires more credits|out of credits?"
    r"|used all .{0,20}credits|API usage limits|payment required|exceeded_current_quota|arrear"
    r"|account .{0,30}(suspended|deactivated|not active)"
    r"|quota .{0,20}exhausted|exhausted .{0,20}(credit|balance)",
    re.IGNORECASE,
)
_BILLED_BY_SIZE = re.compile(r"can only afford|fewer max_tokens", re.IGNORECASE)
"""A refusal of an account that a smaller request would not get."""
_TOO_LARGE_FOR_QUOTA = "Request too large for"
"""How a 429 begins that no pause helps: the request alone exceeds a limit of the account (OpenAI, Groq)."""
_PER_MINUTE = re.compile(r"RESOURCE_EXHAUSTED|per (second|minute)|\b[RT]P[MS]\b")
"""A limit of rate, whose text may mention plans and billing (Gemini)."""
_SPENT = re.compile(r"\bcredits? (are|is) depleted", re.IGNORECASE)
"""An empty account, whose status is that of a limit of rate (Gemini)."""
_CONTENT = re.compile(
    r"moderation|flagged|content[_ -]?(policy|filter|management)|\bsafety|harmful|guardrail|sensitive|prohibited"
    r"|\b(input|prompt|message|image|content|request)\b.{0,40}\b(blocked|rejected|refused|inappropriate)",
    re.IGNORECASE,
)
_DENIED = re.compile(r"not authorized to perform", re.IGNORECASE)
"""AWS's words for a role without the right, which name the model too."""
_FLAGGED = re.compile(
    r"\bflagged\b|content (management|filtering) policy|safety system|ResponsibleAIPolicy|usage polic(y|ies)"
    r"|inappropriate content|content exists risk|data_inspection_failed",
    re.IGNORECASE,
)
"""The texts of filters in a 400."""
_PLACE = re.compile(r"\b(country|countries|region|territory|location)\b|unsupported_country", re.IGNORECASE)
_MODEL = re.compile(r"model|deployment|no (allowed )?(endpoints|providers)", re.IGNORECASE)
_NO_MODEL = re.compile(
    r"model[ _]not[ _](exist|found)|(unknown|invalid)[ _]model\b|model .{0,80}(does not exist|not found)"
    r"|model identifier is invalid",
    re.IGNORECASE,
)
_AGAIN = re.compile(r"lock|time(d )?out|concurren|try again|retry|temporar|too early", re.IGNORECASE)
_KEY = re.compile(r"invalid token|api key|unauthori[sz]ed|expired", re.IGNORECASE)
_WRONG_KEY = re.compile(r"(incorrect|invalid) api key|api key not valid", re.IGNORECASE)
"""How a text begins by which some servers refuse a key with 400 (xAI, Gemini). Later words may repeat the request."""
_WAIT = re.compile(r"(?:retry|try again) (?:in|after) (\d{1,5}(?:\.\d{1,9})?) ?(ms|s)\b", re.IGNORECASE)


def judged(status: int | None, reported: ErrorBody, retry_after: float | None = None) -> InferenceError:
    """Return the typed error of a status other than 2xx, or of an error in an answer (None).

    The message has the server's own words, except about the gateway's credential; the log's detail has those too.
    """
    exact = _status(status, reported)
    if status is None and is_too_long(reported.message, reported.type, reported.code):
        exact = 400
    error = _class(exact, reported, retry_after)
    # The text of a caller's error may repeat a part of the prompt, which no log has.
    words = f"{reported.type or ''} {reported.code or ''}".strip() if error.kind == "caller" else reported.message
    error.detail = f"{exact}: {failure_text.for_log(words)}" if words else str(exact)
    return error


def standard(status: int, reported: ErrorBody, meanings: Mapping[str, str]) -> tuple[int, ErrorBody]:
    """The status and the error in standard words, of a server with meanings of its own.

    `meanings` are codes of `STATUS_OF` by the server's code, type or status.
    """
    for own in (reported.code, reported.type, status):
        if (code := meanings.get(str(own))) is not None:
            return STATUS_OF[code], ErrorBody(reported.message, None, reported.param, code)
    return status, reported


def by_client(error: InferenceError, status: int | None, model: str) -> InferenceError:
    """Return the error of a request whose client has named the model, if the server does not know the model.

    Another endpoint may have loaded it, but a key that may not use it has the same rights everywhere.
    """
    if error.code != UNKNOWN_MODEL:
        return error
    kind = NotFound if status == 403 else NotThere
    named = kind(f"The model `{model[:128]}` does not exist or you may not use it.", param="model")
    named.detail = error.detail
    return named


def _status(status: int | None, reported: ErrorBody) -> int:
    """The status, or the one that the error's own code or type stands for, where the status says less."""
    if status not in (None, 400):
        return status
    for each in (reported.code, reported.type):
        if status is None and str(each).isascii() and str(each).isdigit() and 400 <= int(str(each)) <= 599:
            return int(str(each))
        if each in STATUS_OF and (status is None or STATUS_OF[each] != 404):
            return STATUS_OF[each]
    return status or 500


def _class(status: int, reported: ErrorBody, retry_after: float | None) -> InferenceError:
    words = f"{reported.code or ''} {reported.type or ''} {reported.message or ''}"[:MAX_MESSAGE]
    of_the_request = status in CALLER_STATUS
    if of_the_request and is_too_long(reported.message, reported.type, reported.code):
        return ContextTooLong(_own(reported), param=reported.param)
    if status == 429 and (reported.message or "").startswith(_TOO_LARGE_FOR_QUOTA):
        error = AccountRefused("The request exceeds a limit of the upstream's account.", scope="tenant")
        return _worded(error.because("upstream_quota"), reported)
    if status == 402 or (status in (400, 403, 429) and _is_exhausted(words)):
        # A server may repeat a part of the request in a 400 or 403: such words rest nothing.
        certain = status in (402, 429) or _ACCOUNT.search(f"{reported.code} {reported.type}")
        scope: Scope = "server" if certain and not _BILLED_BY_SIZE.search(words) else "tenant"
        error = AccountRefused("The account of the upstream's key is exhausted.", retry_after=retry_after, scope=scope)
        return _worded(error, reported)
    if status in (403, 404) and reported.message and _CONTENT.search(words):
        return _callers(status, reported)
    names_model = status == 403 and _MODEL.search(words) and not _DENIED.search(words)
    if status == 404 or names_model or (of_the_request and _NO_MODEL.search(words)):
        return _not_found(reported, words)
    if of_the_request and _WRONG_KEY.match(reported.message or ""):
        return credential_refused()
    if status == 401 or status == 403 or (status == 498 and _KEY.search(words)):
        return _callers(status, reported) if status == 403 and _PLACE.search(words) else credential_refused()
    if status in _FULL or (status in (409, 425) and (status == 425 or _AGAIN.search(words))):
        scope = "unknown" if status in (409, 425, 429) else "server"
        wait = _wait(words) if retry_after is None else retry_after
        full = CapacityError("The upstream is overloaded.", retry_after=wait, scope=scope)
        return _worded(full.because("upstream_quota" if status == 429 else full.cause), reported)
    return _callers(status, reported) if of_the_request else _failed(status, reported)


def _is_exhausted(words: str) -> bool:
    """Whether an account is empty, and not only its limit of rate used."""
    return bool(_SPENT.search(words) or (_ACCOUNT.search(words) and not _PER_MINUTE.search(words)))


def _failed(status: int, reported: ErrorBody) -> InferenceError:
    if status in _SLOW:
        return _worded(UpstreamTimeout("The upstream timed out."), reported)
    if status in _UNREACHABLE:
        return _worded(TransportError("The upstream could not be reached."), reported)
    if status in _OWN_FAILURE:
        return failure_text.server_failure(reported.message)
    return _worded(BackendError(failure_text.FAILED), reported)


def _callers(status: int, reported: ErrorBody) -> CallerError:
    code = reported.code if isinstance(reported.code, str) and not reported.code.isdigit() else None
    if status == 413:
        return TooLarge(_own(reported), param=reported.param)
    kind = ContentRefused if _refuses_content(status, reported) else CallerError
    error = kind(_own(reported), param=reported.param, code=code)
    error.inner = reported.inner
    return error


def _refuses_content(status: int, reported: ErrorBody) -> bool:
    named, message = f"{reported.code or ''} {reported.type or ''}", reported.message or ""
    if status in (403, 404, 451):
        return _CONTENT.search(f"{named} {message}") is not None
    # A server may repeat a part of the request in a 400.
    return _CONTENT.search(named) is not None or _FLAGGED.search(message) is not None


def _not_found(reported: ErrorBody, words: str) -> BackendError:
    if reported.param == "model" or _MODEL.search(words):
        return unknown_model()
    return BackendError("The upstream does not know the path of this operation.", code="upstream_path_not_found")


def _own(reported: ErrorBody) -> str:
    return (reported.message or REFUSED)[:MAX_MESSAGE]


def _worded(error: InferenceError, reported: ErrorBody) -> InferenceError:
    """The error with the server's words."""
    if reported.message and (words := failure_text.for_clients(reported.message)):
        error.own_message = error.message
        error.message = f"{error.message} It reports: {words}"
    return error


def _wait(words: str) -> float | None:
    """The seconds of a text such as "try again in 7.66s"."""
    match = _WAIT.search(words)
    return None if match is None else float(match[1]) / (1000 if match[2].lower() == "ms" else 1)


def credential_refused() -> BackendError:
    """Return the error for a pool's key that is wrong or has expired."""
    return BackendError("The upstream refused the gateway's own credential.", code="upstream_credential")


def unknown_model() -> BackendError:
    """Return the error for an endpoint that does not have the model, or not under this name."""
    return BackendError("The upstream does not know the model.", code=UNKNOWN_MODEL)


# Classifies the refusals of servers of OpenAI's family by type, code and text.

_TOO_LONG_TYPES = frozenset({"exceed_context_size_error"})
_UNSPECIFIC = frozenset({None, "", "400", "422", "invalid_request", "invalid_request_error", "BadRequestError"})
_TOO_LONG = re.compile(
    r"maximum (model|context|sequence) length|context[ _](length|size|window|limit)|prompt is too long"
    r"|too large for model with|`inputs` (tokens|must have less than)|input token count .{0,40}exceeds"
    r"|should not exceed max_(num_tokens|seq_len)|(prompt|input) length.{0,40}exceeds|exceeds (the )?model max length"
    r"|exceeds max_(num_tokens|seq_len)|context overflow",
    re.IGNORECASE | re.DOTALL,
)
"""The texts of vLLM, SGLang, llama.cpp, TGI, TensorRT-LLM, LM Studio, OpenVINO and hosted APIs."""


_CALLERS_WORDS = re.compile(
    r"\b(must|should not|cannot be|invalid|exceeds?|unsupported|(not|only) supported|out of range)\b", re.IGNORECASE
)


def is_too_long(message: str | None, type_: str | None, code: str | int | None) -> bool:
    """Whether prompt and response exceed the model's context.

    A specific code decides; the text counts only without one.
    """
    if code == "context_length_exceeded" or type_ in _TOO_LONG_TYPES:
        return True
    return (isinstance(code, int) or code in _UNSPECIFIC) and _TOO_LONG.search(message or "") is not None


def sounds_like_the_callers(message: str) -> bool:
    """Whether a text blames the request, for servers with one status for refusals and failures."""
    return _CALLERS_WORDS.search(message) is not None
