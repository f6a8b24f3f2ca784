"""Bedrock's errors: the exception in a header or in a frame's name, and its message as JSON."""

import re
from contextlib import suppress

import msgspec

from adapters.wire import decoding
from adapters.wire.bedrock.event_stream import StreamFrame, encode_exception
from adapters.wire.error_table import ErrorBody, decode_error

TYPE_HEADER = "x-amzn-errortype"
_TOO_LONG = re.compile(
    r"(input|prompt) is too long|too many input tokens|max(imum)?\b.{0,60}\btokens?\b.{0,80}\b(input|prompt)"
    r"|(input|prompt)\b.{0,80}\bexceeds?\b.{0,60}\b(tokens?|context|length)",
    re.IGNORECASE | re.DOTALL,
)
_NO_MODEL = re.compile(
    r"model identifier is invalid|on-demand throughput isn.t supported"
    r"|model .{0,80}(end of its life|marked .{0,20}legacy)",
    re.IGNORECASE,
)


class _Original(msgspec.Struct):
    """The model's own error, behind Bedrock's."""

    originalMessage: str | None = None  # noqa: N815


_original = msgspec.json.Decoder(_Original).decode
_encode = msgspec.json.Encoder().encode


def decode(header: str | None, body: bytes) -> ErrorBody:
    """Decode the error of a response. `header` is its `x-amzn-errortype`, which may have a URL behind the name."""
    reported = decode_error(body)
    if header:
        reported.type = header.partition(":")[0].rpartition("#")[2].strip()
    return _specific(reported)


def of_frame(frame: StreamFrame) -> ErrorBody:
    """Decode the error of a frame that is no event: an exception of the model, or an error of the service."""
    if frame.kind == "error":
        headers = frame.headers
        return ErrorBody(headers.get(":error-message"), headers.get(":error-code"))
    name = frame.headers.get(":exception-type", "")
    reported = decode_error(frame.payload)
    reported.type = name[:1].upper() + name[1:] or None
    with suppress(*decoding.MALFORMED_JSON):
        reported.message = _original(frame.payload).originalMessage or reported.message
    return _specific(reported)


def _specific(reported: ErrorBody) -> ErrorBody:
    """Give a refusal the code of its reason. Bedrock has one exception for all reasons, and a text."""
    if reported.type == "ValidationException" and (message := reported.message):
        if _TOO_LONG.search(message):
            reported.code = "context_length_exceeded"
        elif _NO_MODEL.search(message):
            reported.code = "model_not_found"
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
