"""Bodies of HTTP requests and responses: JSON, streams of events, and failures in the format of
OpenAI's clients: the status that they evaluate, and an `error` with all four keys."""

import msgspec

from adapters import statuses
from adapters.errors import CallerError, CapacityError, InferenceError, Unavailable
from adapters.http1.message import NO_HEADERS, Headers, Request, Response
from adapters.ignored_fields import IGNORED, IgnoredFields
from adapters.wire.internal_headers import REFUSED
from adapters.wire.openai import chat as openai
from runtimes.llm.api.generation import AnswerStream
from runtimes.llm.engine.async_engine import EngineDead

RETRY_SECONDS = 1
_JSON = ("content-type", "application/json")


def error_response(error: InferenceError) -> Response:
    """An error in OpenAI's format, with the status that its clients evaluate."""
    status = _status(error)
    kind = "rate_limit_error" if status == 429 else statuses.openai_type(error)
    headers = [_JSON]
    retry_after = RETRY_SECONDS if status == 429 and error.retry_after is None else error.retry_after
    if retry_after is not None:
        headers.append(("retry-after", f"{retry_after:.0f}"))
    if status in (429, 503):
        headers.append((REFUSED, "tenant" if status == 429 else "server"))
    return Response(status, headers, openai.encode_error(error, kind))


def refusal(status: int, code: str, message: str, headers: Headers = NO_HEADERS) -> Response:
    """An error of a message that never became a request."""
    kind = "server_error" if status >= 500 else "invalid_request_error"
    return Response(status, [_JSON], openai.encode_error(CallerError(message, code=code), kind))


def _status(error: InferenceError) -> int:
    """A full queue is a 429, which OpenAI's clients retry; a dead engine a 503, since another endpoint may answer."""
    if isinstance(error, CapacityError) and not isinstance(error, Unavailable):
        return 429
    return 503 if isinstance(error, EngineDead) else statuses.own_http_status(error)


JSON = ("content-type", "application/json")
STREAM_HEADERS = [("content-type", "text/event-stream; charset=utf-8"), ("cache-control", "no-cache")]
_encode = msgspec.json.Encoder().encode


async def streamed(events: AnswerStream) -> Response:
    """A response that begins with its first text: an earlier failure still has its own status."""
    try:
        await events.begin()
    except BaseException:
        await events.aclose()
        raise
    return Response(200, STREAM_HEADERS, events)


def reported(answer: Response, hints: IgnoredFields) -> Response:
    """A response with a header that lists the ignored fields."""
    if not hints.ignored:
        return answer
    return Response(answer.status, [*answer.headers, (IGNORED, ", ".join(hints.ignored))], answer.body)


async def json_body(request: Request) -> bytes:
    kind = (request.headers.get("content-type") or "").partition(";")[0].strip().lower()
    if kind != "application/json":
        message = f"The body must be application/json, not {kind or 'without a content-type'}."
        raise CallerError(message, code="unsupported_media_type")
    return await request.read()


def json_response(status: int, value: object, *headers: tuple[str, str]) -> Response:
    return Response(status, [JSON, *headers], _encode(value))
