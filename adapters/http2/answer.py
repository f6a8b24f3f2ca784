"""Decodes the head and the trailers of a response from a gRPC server or from a proxy in front of it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from adapters.http2.codes import Code
from adapters.http2.fields import Field
from adapters.http2.head import BAD_IN_VALUE, NAME, is_grpc
from adapters.http2.status import GrpcError, Reported, as_metadata, decode_message

FROM_HTTP = {
    400: Code.INTERNAL, 401: Code.UNAUTHENTICATED, 403: Code.PERMISSION_DENIED, 404: Code.UNIMPLEMENTED,
    429: Code.UNAVAILABLE, 502: Code.UNAVAILABLE, 503: Code.UNAVAILABLE, 504: Code.UNAVAILABLE,
}  # fmt: skip
"""The code of a response without a gRPC status (gRPC's http-grpc-status-mapping)."""
OURS = frozenset(
    {b":status", b"content-type", b"grpc-status", b"grpc-message", b"grpc-encoding", b"grpc-accept-encoding"}
)


@dataclass(frozen=True, slots=True)
class AnswerHead:
    """The head or the trailers of a response: trailers have no `http_status`, a head without trailers no `status`."""

    metadata: Mapping[str, str]
    http_status: int | None = None
    status: int | None = None
    message: str = ""
    encoding: bytes = b""
    grpc: bool = False
    """Whether the content type is gRPC's."""
    malformed: bool = False

    def error(self) -> GrpcError | None:
        """The error that the end of a response reports; None for OK."""
        if self.status == Code.OK:
            return None
        if self.status is not None:
            return Reported(self.status, self.message, as_metadata(self.metadata))
        if self.http_status not in (None, 200):
            code = FROM_HTTP.get(self.http_status or 0, Code.UNKNOWN)
            return GrpcError(code, f"The upstream answered with HTTP status {self.http_status}.")
        return GrpcError(Code.UNKNOWN, "The upstream's answer ended without a status.")


MALFORMED = AnswerHead({}, malformed=True)


def read_answer(received: Sequence[Field]) -> AnswerHead:
    """Decode a head or trailers from the fields in the order of their arrival."""
    fields: dict[bytes, bytes] = {}
    for name, value in received:
        pseudo = name == b":status" and not fields
        if (not pseudo and not NAME.fullmatch(name)) or BAD_IN_VALUE.search(value):
            return MALFORMED
        fields[name] = fields[name] + b"," + value if name in fields else value
    http_status = _number(fields.get(b":status"))
    status = _number(fields.get(b"grpc-status"))
    if (http_status is None) is (b":status" in fields):
        return MALFORMED
    return AnswerHead(
        {name.decode("latin-1"): value.decode("latin-1") for name, value in fields.items() if name not in OURS},
        http_status,
        Code.UNKNOWN if status is None and b"grpc-status" in fields else status,
        decode_message(fields.get(b"grpc-message", b"")),
        fields.get(b"grpc-encoding", b"identity"),
        is_grpc(fields.get(b"content-type", b"")),
    )


def _number(value: bytes | None) -> int | None:
    return int(value) if value is not None and value.isdigit() and len(value) <= 3 else None
