"""Bedrock's errors: the exception in a header or in a frame's name, and its message as JSON."""

import msgspec

from adapters.wire.bedrock.event_stream import StreamFrame, encode_exception
from adapters.wire.error_table import ErrorBody, decode_error

TYPE_HEADER = "x-amzn-errortype"
_encode = msgspec.json.Encoder().encode


def decode(header: str | None, body: bytes) -> ErrorBody:
    """Decode the error of a response. `header` is its `x-amzn-errortype`, which may have a URL behind the name."""
    reported = decode_error(body)
    if header:
        reported.type = header.partition(":")[0].rpartition("#")[2].strip()
    return reported


def of_frame(frame: StreamFrame) -> ErrorBody:
    """Decode the error of a frame that is no event: an exception of the model, or an error of the service."""
    if frame.kind == "error":
        headers = frame.headers
        return ErrorBody(headers.get(":error-message"), headers.get(":error-code"))
    name = frame.headers.get(":exception-type", "")
    reported = decode_error(frame.payload)
    reported.type = name[:1].upper() + name[1:] or None
    return reported


_NAMES = {
    401: "UnrecognizedClientException", 403: "AccessDeniedException", 404: "ResourceNotFoundException",
    408: "ModelTimeoutException", 424: "ModelErrorException", 429: "ThrottlingException", 502: "ModelErrorException",
    503: "ServiceUnavailableException", 504: "ModelTimeoutException",
}  # fmt: skip
_STATUSES = {
    "UnrecognizedClientException": 403, "AccessDeniedException": 403, "ResourceNotFoundException": 404,
    "ModelTimeoutException": 408, "ModelErrorException": 424, "ThrottlingException": 429,
    "InternalServerException": 500, "ServiceUnavailableException": 503, "ValidationException": 400,
}  # fmt: skip
_STREAMED = {
    "ModelErrorException": "modelStreamErrorException", "ModelTimeoutException": "modelTimeoutException",
    "ThrottlingException": "throttlingException", "ServiceUnavailableException": "serviceUnavailableException",
    "ValidationException": "validationException",
}  # fmt: skip
"""The exceptions that a stream may have; any other is an internal one."""


def exception_of(status: int) -> tuple[str, int]:
    """Return Bedrock's exception for a status of the gateway, and the exception's own status."""
    name = _NAMES.get(status) or ("InternalServerException" if status >= 500 else "ValidationException")
    return name, _STATUSES[name]


def encode(message: str) -> bytes:
    """Encode the body of an error."""
    return _encode({"message": message})


def encode_frame(status: int, message: str) -> bytes:
    """Encode the exception that ends a stream, for a status of the gateway."""
    name = _STREAMED.get(exception_of(status)[0], "internalServerException")
    return encode_exception(name, encode(message))
