"""Decodes and checks the head of a call by RFC 9113 and gRPC. The result is cached for equal header blocks."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from adapters.http2.fields import Field
from adapters.http2.inbox import WINDOW_BITS
from adapters.http2.status import Code, GrpcError, decode_timeout

PSEUDO = frozenset({b":method", b":scheme", b":path", b":authority"})
FORBIDDEN = frozenset({b"connection", b"keep-alive", b"proxy-connection", b"transfer-encoding", b"upgrade"})
OURS = frozenset({b"te", b"content-type", b"grpc-timeout", b"grpc-encoding", b"grpc-accept-encoding"})
"""Fields that only this package interprets."""
NAME = re.compile(rb"[!#$%&'*+\-.^_`|~0-9a-z]+")
BAD_IN_VALUE = re.compile(rb"[\0\r\n]")


@dataclass(frozen=True, slots=True)
class RequestHead:
    """A decoded head. `malformed` leads to a reset, `status` to an HTTP response, `error` to the end of the call."""

    path: str = ""
    metadata: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    timeout: float | None = None
    encoding: bytes = b""
    malformed: bool = False
    status: int = 200
    error: GrpcError | None = None


MALFORMED = RequestHead(malformed=True)
OVERSIZED = RequestHead(error=GrpcError(Code.RESOURCE_EXHAUSTED, "The metadata is too large."))


def read_request(received: Sequence[Field]) -> RequestHead:
    """Decode a head from the fields in the order of their arrival."""
    pseudo: dict[bytes, bytes] = {}
    fields: dict[bytes, bytes] = {}
    for name, value in received:
        if name in PSEUDO and not fields and name not in pseudo:
            pseudo[name] = value
        elif not NAME.fullmatch(name) or name in FORBIDDEN or BAD_IN_VALUE.search(value):
            return MALFORMED
        else:
            fields[name] = fields[name] + b"," + value if name in fields else value
    if len(pseudo) < 3 or (b":authority" in pseudo and len(pseudo) < 4) or not pseudo[b":path"].startswith(b"/"):
        return MALFORMED
    if fields.get(b"te", b"trailers") != b"trailers":
        return MALFORMED
    if pseudo[b":method"] != b"POST":
        return RequestHead(status=405)
    if not is_grpc(fields.get(b"content-type", b"")):
        return RequestHead(status=415)
    return _call(pseudo[b":path"], fields)


def _call(path: bytes, fields: Mapping[bytes, bytes]) -> RequestHead:
    error = None
    timeout = None
    if b"grpc-timeout" in fields:
        timeout = decode_timeout(fields[b"grpc-timeout"])
        if timeout is None:
            error = GrpcError(Code.INVALID_ARGUMENT, "grpc-timeout is not a number of up to 8 digits and a unit.")
    encoding = fields.get(b"grpc-encoding", b"identity")
    if encoding != b"identity" and encoding not in WINDOW_BITS:
        text = encoding.decode("latin-1")
        error = GrpcError(Code.UNIMPLEMENTED, f"grpc-encoding is {text}, and may be identity, deflate or gzip.")
    metadata = {n.decode("latin-1"): v.decode("latin-1") for n, v in fields.items() if n not in OURS}
    return RequestHead(path.decode("latin-1"), MappingProxyType(metadata), timeout, encoding, error=error)


def is_grpc(content_type: bytes) -> bool:
    """Whether a content type is `application/grpc`, with any suffix for the encoding of messages."""
    kind = content_type.lower()
    return kind.startswith(b"application/grpc") and kind[16:17] in (b"", b"+", b";")
