"""Bedrock's errors: the exception in a header or in a frame's name, and its message as JSON."""

import msgspec

from adapters.wire.bedrock.event_stream import StreamFrame
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


def encode(message: str) -> bytes:
    """Encode the body of an error."""
    return _encode({"message": message})
