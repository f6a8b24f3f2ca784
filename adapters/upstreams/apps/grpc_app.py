"""Responses of apps over gRPC: messages that the gateway does not decode."""

from collections.abc import Callable

from adapters.http2.exchange import Exchange
from adapters.types import APP, Usage
from adapters.upstreams.grpc_stream import GrpcStream, Refuse


class AppMessages(GrpcStream):
    """A stream of an app's messages, one piece for each message that `read` returns."""

    __slots__ = ("_decode",)

    def __init__(
        self, exchange: Exchange, refuse: Refuse, decode: Callable[[bytes], bytes] = bytes, content_type: str = ""
    ) -> None:
        super().__init__(exchange, refuse, content_type=content_type, usage=Usage(exact=True), form=APP)
        self._decode = decode

    def _read(self, message: bytes) -> bytes:
        return self._decode(message)
