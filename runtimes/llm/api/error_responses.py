"""Failures as OpenAI's clients expect them: the status they act on, and an `error` with all four keys."""

from adapters.errors import CallerError, CapacityError, DeadlineError, InferenceError, NotFound, TooLarge, Unavailable
from adapters.http1.message import Response
from adapters.wire.internal_headers import REFUSED
from adapters.wire.openai import chat as openai
from runtimes.llm.engine.async_engine import EngineDead

RETRY_SECONDS = 1
_JSON = ("content-type", "application/json")
_STATUS_OF_CODE = {
    "unknown_path": 404, "method_not_allowed": 405, "request_timeout": 408, "unsupported_media_type": 415,
}  # fmt: skip


def error_response(error: InferenceError) -> Response:
    """OpenAI's shape, with the status that its clients act on."""
    status = _status(error)
    kind = {429: "rate_limit_error"}.get(status, "server_error" if status >= 500 else "invalid_request_error")
    headers = [_JSON]
    retry_after = RETRY_SECONDS if status == 429 and error.retry_after is None else error.retry_after
    if retry_after is not None:
        headers.append(("retry-after", f"{retry_after:.0f}"))
    if status in (429, 503):
        headers.append((REFUSED, "tenant" if status == 429 else "server"))
    return Response(status, headers, openai.encode_error(error, kind))


def refusal(status: int, code: str, message: str) -> Response:
    """For what never became a request."""
    kind = "server_error" if status >= 500 else "invalid_request_error"
    return Response(status, [_JSON], openai.encode_error(CallerError(message, code=code), kind))


def _status(error: InferenceError) -> int:
    match error:
        case NotFound():
            return 404
        case TooLarge():
            return 413
        case CallerError():
            return _STATUS_OF_CODE.get(error.code, 400)
        case Unavailable():
            return 503
        case CapacityError():
            return 429
        case DeadlineError():
            return 504
        case EngineDead():  # another endpoint may answer
            return 503
        case _:
            return 500
