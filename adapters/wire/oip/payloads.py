"""The payloads of the Open Inference Protocol's requests, over HTTP and gRPC."""

from typing import ClassVar

from adapters.requests import TensorPayload
from adapters.types import TensorWire


class HttpPayload(TensorPayload, kw_only=True):
    """The HTTP body of an inference or of a prompt."""

    wire: ClassVar[TensorWire] = "oip-http"

    header_length: int | None = None
    """Bytes of JSON before the binary tensors; None for JSON only, 0 for no JSON."""
    encoding: str = ""
    """The compression of `body`: the client's Content-Encoding."""
    opened: bytes = b""
    """The decompressed `body`, if it is compressed."""
    accepts: str = ""
    """The client's Accept-Encoding."""

    @property
    def plain(self) -> bytes:
        return self.opened or self.body

    def undecoded(self) -> "HttpPayload":
        return HttpPayload(body=self.plain, header_length=self.header_length)


class GrpcPayload(TensorPayload):
    """A `ModelInferRequest`, with the client's names."""

    wire: ClassVar[TensorWire] = "oip-grpc"


def header_length(payload: TensorPayload) -> int | None:
    """Bytes of JSON before the binary tensors; None for a body of one part."""
    return payload.header_length if isinstance(payload, HttpPayload) else None
