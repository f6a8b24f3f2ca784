"""Anthropic's errors: encoding and decoding."""

import re
from typing import Any

import msgspec

from adapters.errors import (
    BackendError,
    CallerError,
    CapacityError,
    ContextTooLong,
    InferenceError,
    TooLarge,
    UpstreamTimeout,
)
from adapters.wire import decoding, model_failures
from adapters.wire.openai import refusals

MAX_MESSAGE = 2_000
_OURS = re.compile(r"credit balance|API usage limits|billing", re.IGNORECASE)
"""A refusal of type `invalid_request_error` that is about the account's billing."""
_TOO_LONG = "prompt is too long"
"""The text that clients match to detect a conversation that must be shortened."""

_encode = msgspec.json.Encoder().encode


class ErrorBody(msgspec.Struct):
    """The member `error`."""

    type: str = ""
    message: str = ""


class _Whole(msgspec.Struct):
    error: ErrorBody | None = None


_whole = msgspec.json.Decoder(_Whole).decode


def decode_error(body: bytes) -> ErrorBody:
    """Decode an error body; empty if it holds no error."""
    try:
        return _whole(body).error or ErrorBody()
    except decoding.MALFORMED_JSON:
        return ErrorBody()


def refusal_of(error: ErrorBody, *, too_large: bool = False) -> InferenceError:
    """The typed form of an error that blames the request."""
    message = (error.message or "The upstream refused the request.")[:MAX_MESSAGE]
    if _OURS.search(message):
        return BackendError("The upstream refused the gateway's own credential.", code="upstream_credential")
    if refusals.is_too_long(message, None, None):
        return ContextTooLong(message)
    return TooLarge(message) if too_large else CallerError(message)


def stream_error(error: ErrorBody) -> InferenceError:
    """The typed form of an `error` event, which has no status."""
    match error.type:
        case "overloaded_error":
            return CapacityError("The upstream is overloaded.")
        case "rate_limit_error":
            return CapacityError("The upstream is overloaded.", scope="unknown")
        case "timeout_error":
            return UpstreamTimeout("The upstream timed out.")
        case "authentication_error" | "permission_error" | "billing_error":
            return BackendError("The upstream refused the gateway's own credential.", code="upstream_credential")
        case "not_found_error":
            return BackendError("The upstream does not know the model.", code="upstream_model_not_found")
        case "invalid_request_error" | "request_too_large":
            return refusal_of(error, too_large=error.type == "request_too_large")
    return model_failures.server_failed(error.message, "The upstream failed in the middle of its answer.")


def encode_error(error: InferenceError, type_: str, request_id: str | None) -> bytes:
    """Anthropic's error object. Its `details` hold the gateway's own stable code."""
    message = error.message
    if isinstance(error, ContextTooLong) and _TOO_LONG not in message:
        message = f"{_TOO_LONG}: {message}"
    fields: dict[str, Any] = {"type": type_, "message": message, "details": {"error_code": error.code}}
    return _encode({"type": "error", "error": fields, "request_id": request_id})


def encode_event(error: InferenceError, type_: str, request_id: str | None) -> bytes:
    """The last event of a stream that broke."""
    return as_event(encode_error(error, type_, request_id))


def as_event(body: bytes) -> bytes:
    """An error object as an event."""
    return b"event: error\ndata: %b\n\n" % body
