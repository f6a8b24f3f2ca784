"""Anthropic's errors: encoding and decoding."""

from typing import Any

import msgspec

from adapters.errors import ContextTooLong, InferenceError
from adapters.wire import error_table, failure_text
from adapters.wire.error_table import ErrorBody as ErrorBody
from adapters.wire.error_table import decode_error as decode_error

_TOO_LONG = "prompt is too long"
"""The text that clients match to detect a conversation that must be shortened."""

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(dict[str, Any]).decode


def stream_error(error: ErrorBody) -> InferenceError:
    """The typed form of an `error` event, which has no status."""
    failure = error_table.judged(None, error)
    if failure.message == failure_text.FAILED:
        failure.message = "The upstream failed in the middle of its answer."
    return failure


def encode_error(error: InferenceError, type_: str, request_id: str | None) -> bytes:
    """Anthropic's error object. Its `details` hold the gateway's own stable code."""
    message = error.message
    if isinstance(error, ContextTooLong) and _TOO_LONG not in message:
        message = f"{_TOO_LONG}: {message}"
    fields: dict[str, Any] = {"type": type_, "message": message, "details": {"error_code": error.code}}
    return _encode({"type": "error", "error": fields, "request_id": request_id})


_GOOGLE_STATUSES = {
    400: "INVALID_ARGUMENT", 401: "UNAUTHENTICATED", 403: "PERMISSION_DENIED", 404: "NOT_FOUND",
    429: "RESOURCE_EXHAUSTED", 499: "CANCELLED", 503: "UNAVAILABLE", 504: "DEADLINE_EXCEEDED", 529: "UNAVAILABLE",
}  # fmt: skip


def with_google_status(body: bytes, status: int) -> bytes:
    """An error object with the code and the status of Google's errors too, for clients of either."""
    decoded = _decode(body)
    code = _GOOGLE_STATUSES.get(status) or ("INTERNAL" if status >= 500 else "INVALID_ARGUMENT")
    decoded["error"] |= {"code": status, "status": code}
    return _encode(decoded)


def encode_event(error: InferenceError, type_: str, request_id: str | None) -> bytes:
    """The last event of a stream that broke."""
    return as_event(encode_error(error, type_, request_id))


def as_event(body: bytes) -> bytes:
    """An error object as an event."""
    return b"event: error\ndata: %b\n\n" % body
