"""OpenAI's API (specification 2.3): decodes requests, reads usage and errors of responses, encodes errors.

Bodies are decoded one level deep. Only the values that routing, limits and billing need are decoded further; all
others are forwarded unchanged.
"""

from collections.abc import Mapping
from hashlib import blake2b
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar

import msgspec
from msgspec import Raw
from msgspec.structs import replace

from adapters.errors import CallerError, InferenceError
from adapters.ignored_fields import IgnoredFields
from adapters.requests import (
    ChatRequest,
    CompletionRequest,
    EmbeddingRequest,
    Fields,
    GenerateRequest,
    ResponsesRequest,
)
from adapters.types import BYTES_PER_TOKEN, Usage
from adapters.wire import decoding, error_table, failure_text, reported_usage, sse
from adapters.wire.body import field as _field
from adapters.wire.body import open_body as _open
from adapters.wire.error_table import ErrorBody as ErrorBody
from adapters.wire.error_table import decode_error as decode_error
from adapters.wire.openai import request_codec
from adapters.wire.openai.dialects import PLAIN, OpenAIDialect
from adapters.wire.openai.history import in_dialect, with_early_system
from adapters.wire.openai.request_codec import CODEC, OpenAIPayload, bounded, choices, max_tokens
from adapters.wire.openai.spelling import renamed, spelled
from adapters.wire.reported_usage import UsageReport

DONE = b"[DONE]"
MAX_MESSAGE = error_table.MAX_MESSAGE
CACHE_SALT = "cache_salt"
FAILED_MID_STREAM = "The upstream failed in the middle of its answer."

_TRUE, _NULL, _ABSENT = Raw(b"true"), Raw(b"null"), Raw(b"")
_OF_TOOLS = frozenset({"tools", "tool_choice", "parallel_tool_calls"})
_NO_DEMAND = (Raw(b"null"), Raw(b'"auto"'), Raw(b'"none"'))
_EMPTY_LIST = 64
"""Most bytes of a list without items."""

G = TypeVar("G", bound=GenerateRequest)


class _Whole(msgspec.Struct):
    choices: Raw = _NULL
    data: Raw = _ABSENT
    usage: Any = None
    x_groq: Any = None
    error: Raw = _NULL
    object: Any = None


_whole = msgspec.json.Decoder(_Whole).decode
_any = msgspec.json.Decoder().decode
_encode = msgspec.json.Encoder().encode
_string = msgspec.json.Decoder(str)
_optional_string = msgspec.json.Decoder(str | None)
_optional_bool = msgspec.json.Decoder(bool | None)
_options = msgspec.json.Decoder(dict[str, Raw] | None)
_array = msgspec.json.Decoder(list[Raw])
_prompt = msgspec.json.Decoder(str | list[str | int | list[int]])


# ── requests ──────────────────────────────────────────────────────────────────────────────────────────


def decode_chat(body: bytes) -> ChatRequest:
    """Decode a chat. Raises `CallerError` that names the field at fault."""
    fields = _open(body)
    if not _field(fields, "messages", _array, required=True):
        raise CallerError("`messages` must not be empty.", param="messages")
    return request_codec.evaluated_features(_request(ChatRequest, fields, fields["messages"], len(body)))


def chat_request(
    fields: Fields, size: int, ignored: tuple[str, ...] = (), *, vision: bool | None = None
) -> ChatRequest:
    """The request of a chat from the fields of another wire. `ignored` are the fields without effect on a chat.

    `vision` is the feature if it is evaluated already.

    Raises `CallerError` that names the field at fault.
    """
    request = _request(ChatRequest, fields, fields["messages"], size)
    if vision is not None:
        request.payload.features = {"vision": vision}
    return request_codec.evaluated_features(replace(request, ignored=ignored))


def responses_request(fields: Fields, size: int) -> ResponsesRequest:
    """The request of a Response that its server decodes itself. Raises `CallerError` that names the field at fault."""
    request = _request(ResponsesRequest, fields, fields["input"], size)
    return replace(request, n=1, include_usage=True)  # its streams always report usage


def decode_completion(body: bytes) -> CompletionRequest:
    """Decode a completion. Raises `CallerError` that names the field at fault."""
    return completion_request(_open(body), len(body))


def completion_request(fields: Fields, size: int) -> CompletionRequest:
    """The request of a completion from its fields. Raises `CallerError` that names the field at fault."""
    _field(fields, "prompt", _prompt, required=True)
    return _request(CompletionRequest, fields, fields["prompt"], size)


def decode_embedding(body: bytes) -> EmbeddingRequest:
    """Decode an embedding request. Raises `CallerError` that names the field at fault."""
    return embedding_request(_open(body), len(body))


def embedding_request(fields: Fields, size: int) -> EmbeddingRequest:
    """The request of an embedding from its fields. Raises `CallerError` that names the field at fault."""
    if not _field(fields, "input", _prompt, required=True):
        raise CallerError("`input` must not be empty.", param="input")
    return replace(_request(EmbeddingRequest, fields, fields["input"], size), stream=False, n=0)


def _request(kind: type[G], fields: Fields, prompt: Raw, size: int) -> G:
    options = (_field(fields, "stream_options", _options) if "stream_options" in fields else None) or {}
    model = _field(fields, "model", _string, required=True)
    fields["model"] = fields.pop("model")  # last: a case-insensitive server uses the last of `Model` and `model`
    view = memoryview(prompt)
    stream = _field(fields, "stream", _optional_bool) if "stream" in fields else False
    usage = _field(options, "include_usage", _optional_bool) if "include_usage" in options else False
    return kind(
        model=model or "",
        payload=OpenAIPayload(fields=fields),
        stream=stream or False,
        include_usage=usage or False,
        prompt_tokens=len(view) // BYTES_PER_TOKEN + 1,
        max_tokens=max_tokens(fields),
        n=choices(fields) if "n" in fields else 1,
        size=size,
        user=_field(fields, "user", _optional_string) if "user" in fields else None,
        prompt=view,
        codec=CODEC,
    )


def upstream_body(
    request: GenerateRequest,
    model: str | None,
    dialect: OpenAIDialect = PLAIN,
    salt: str = "",
    added: Mapping[str, Raw] = MappingProxyType({}),
    ignored: IgnoredFields | None = None,
) -> bytes:
    """Encode the upstream's body: the client's values, the upstream's model name, and a request for usage.

    `salt` separates tenants in the server's prefix cache. The client's own `cache_salt` divides the tenant's prompts
    further and never reaches another tenant's. `added` fields for the server precede the client's. Fields that the
    server lacks are reported in `ignored`. Raises `CallerError` if the answer would be another one without them.

    The body is built from the fields, so that a duplicate key reaches the upstream once, with the authorised value.
    """
    fields = request.fields
    if added:
        fields = {**added, **fields, **added}
    if model is not None:
        fields = {**fields, "model": Raw(_encode(model))}
    if dialect.hosts:
        fields = bounded(fields)
    if isinstance(request, ChatRequest):
        if not _OF_TOOLS.isdisjoint(fields):
            fields = _with_useful_tools(fields)
        if dialect.lacks or dialect.without or dialect.words:
            fields = spelled(fields, request, dialect, model or request.model, ignored or IgnoredFields())
        elif dialect.renames:
            fields = renamed(fields, dialect.renames)
        if dialect.refuses or dialect.signs or dialect.thoughts:
            fields = {**fields, "messages": _messages_for(fields["messages"], dialect, model or request.model)}
        if request.payload.is_translated and not dialect.late_system:
            fields = {**fields, "messages": with_early_system(fields["messages"])}
    if not dialect.takes_stream_options:
        fields = {name: value for name, value in fields.items() if name != "stream_options"}
    elif request.stream and not request.include_usage:
        options = _options.decode(fields.get("stream_options") or b"null")
        fields = {**fields, "stream_options": Raw(_encode({**(options or {}), "include_usage": _TRUE}))}
    if salt and not isinstance(request, EmbeddingRequest):
        own = fields.get(CACHE_SALT)
        whole = salt if own is None else blake2b(salt.encode() + bytes(own), digest_size=16).hexdigest()
        fields = {**fields, CACHE_SALT: Raw(_encode(whole))}
    return _encode(fields)


def _messages_for(messages: Raw, dialect: OpenAIDialect, model: str) -> Raw:
    replay = dialect.replay_of(model) if dialect.replays else ""
    return in_dialect(messages, dialect.refuses, signed=dialect.signs, thoughts=dialect.thoughts, replay=replay)


def _with_useful_tools(fields: dict[str, Raw]) -> dict[str, Raw]:
    """Drop an empty list of tools, and what refers to it: servers refuse them. A choice that demands a call remains,
    so that the server explains its refusal."""
    tools = fields.get("tools", _NULL)
    if len(tools) > _EMPTY_LIST or bytes(tools).translate(None, b" \t\r\n") not in (b"null", b"[]"):
        return fields
    gone = _OF_TOOLS if fields.get("tool_choice", _NULL) in _NO_DEMAND else _OF_TOOLS - {"tool_choice"}
    return {name: value for name, value in fields.items() if name not in gone}


# ── responses ───────────────────────────────────────────────────────────────────────────────────────────


def usage_of_body(body: bytes, answered: str = "choices") -> Usage | None:
    """Read the usage of a response. Raises `BackendError` unless it has a list named `answered`."""
    whole = _read(body, "response")
    if whole.error != _NULL or whole.object == "error":
        raise error_in_body(decode_error(body))
    if b'"error"' in body and (failure := _failed_choice(whole)):
        raise error_in_body(decode_error(failure))
    if bytes(memoryview(whole.choices if answered == "choices" else whole.data)[:1]) != b"[":
        raise decoding.bad_response(f"The upstream's response has no `{answered}`.")
    reported = _reported(whole, body)
    return None if reported is None else reported.usage


class ChatEvent(NamedTuple):
    """The relevant part of one event of a stream."""

    reported: UsageReport | None
    only_usage: bool
    """The extra last chunk of `include_usage`, without choices."""


def read_event(data: bytes) -> ChatEvent:
    """Read one event. Raises `BackendError` for an error event and for malformed data."""
    whole = _read(data, "stream")
    if whole.error != _NULL or whole.object == "error":
        raise error_in_body(decode_error(data), FAILED_MID_STREAM)
    if b'"error"' in data and (failure := _failed_choice(whole)):
        raise error_in_body(decode_error(failure), FAILED_MID_STREAM)
    has_choices = bytes(memoryview(whole.choices)) not in (b"null", b"[]")
    return ChatEvent(_reported(whole, data), whole.usage is not None and not has_choices)


class _Failed(msgspec.Struct):
    error: Raw = _NULL


_failed = msgspec.json.Decoder(list[_Failed] | None).decode


def _failed_choice(whole: _Whole) -> bytes:
    """The error in a choice (OpenRouter), or in `x_groq`, as a body of its own; empty without any."""
    if isinstance(whole.x_groq, dict) and (error := whole.x_groq.get("error")):
        return _encode({"error": error})
    try:
        choices = _failed(whole.choices) or []
    except decoding.MALFORMED_JSON:
        return b""
    return next((_encode({"error": choice.error}) for choice in choices if choice.error != _NULL), b"")


def _reported(whole: _Whole, body: bytes) -> UsageReport | None:
    if (reported := reported_usage.read(whole.usage)) is not None or b'"usage"' not in body:
        return reported
    return reported_usage.of_chat({"choices": _any(whole.choices), "x_groq": whole.x_groq})


def _read(body: bytes, subject: str) -> _Whole:
    try:
        return _whole(body)
    except decoding.MALFORMED_JSON:
        return decoding.decode(lambda given: _whole(decoding.strict(given)), body, subject)


# ── errors ────────────────────────────────────────────────────────────────────────────────────────────


def is_too_long(error: ErrorBody) -> bool:
    """Whether an error is about the length of the model's context."""
    return error_table.is_too_long(error.message, error.type, error.code)


def error_in_body(error: ErrorBody, otherwise: str = failure_text.FAILED) -> InferenceError:
    """The typed error of a body with status 200 that holds an error. A failure without a text has the message
    `otherwise`."""
    failure = error_table.judged(None, error)
    if failure.message == failure_text.FAILED:
        failure.message = otherwise
    return failure


def encode_error(error: InferenceError, type_: str) -> bytes:
    """Encode OpenAI's error object, with all four keys, and Azure's verdict of its filter if there is one."""
    body: dict[str, Any] = {"message": error.message, "type": type_, "param": error.param, "code": error.code}
    if isinstance(error, CallerError) and error.inner is not None:
        body["innererror"] = error.inner
    return _encode({"error": body})


def encode_models(models: list[dict[str, object]]) -> bytes:
    """Encode `/v1/models`."""
    return _encode({"object": "list", "data": models})


def model(name: str, created: int, kind: str) -> dict[str, object]:
    """`/v1/models/{name}`: its creation in Unix seconds, and the kind of its runtime."""
    return {"id": name, "object": "model", "created": created, "owned_by": "headrace", "kind": kind}


# A whole answer as a stream, for servers that do not stream although a client has asked for it.

_decode = msgspec.json.Decoder(dict[str, Any]).decode


def events_of(body: bytes, *, include_usage: bool) -> bytes:
    """Return the events of an answer that has `choices`. Raises `BackendError` for a malformed one."""
    answer = decoding.decode(_decode, body)
    about = {name: value for name, value in answer.items() if name not in ("choices", "usage")}
    if about.get("object") == "chat.completion":
        about["object"] = "chat.completion.chunk"
    choices = [choice for choice in answer.get("choices") or () if isinstance(choice, dict)]
    events = [
        {**about, "choices": [_opening(choice) for choice in choices]},
        {**about, "choices": [_end(choice) for choice in choices]},
    ]
    if include_usage and answer.get("usage") is not None:
        events.append({**about, "choices": [], "usage": answer["usage"]})
    return b"".join(sse.encode(_encode(event)) for event in events) + sse.encode(DONE)


def _opening(choice: dict[str, Any]) -> dict[str, Any]:
    """The chunk of a choice with its whole content."""
    opening = {**choice, "finish_reason": None}
    if not isinstance(message := opening.pop("message", None), dict):
        return opening
    calls = message.get("tool_calls")
    if isinstance(calls, list):
        numbered = [{"index": index, **call} for index, call in enumerate(calls) if isinstance(call, dict)]
        message = {**message, "tool_calls": numbered}
    return {**opening, "delta": message}


def _end(choice: dict[str, Any]) -> dict[str, Any]:
    """The chunk that ends a choice."""
    empty: dict[str, Any] = {"delta": {}} if "message" in choice else {"text": ""}
    return {"index": choice.get("index", 0), **empty, "finish_reason": choice.get("finish_reason")}
