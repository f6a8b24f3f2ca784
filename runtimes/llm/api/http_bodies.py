"""Bodies of HTTP requests and responses: JSON, and streams of events."""

import msgspec

from adapters.errors import CallerError
from adapters.http1.message import Request, Response
from adapters.ignored_fields import IGNORED, IgnoredFields
from runtimes.llm.api.generation import AnswerStream

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
