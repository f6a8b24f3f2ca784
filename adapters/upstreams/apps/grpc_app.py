"""Responses of apps over gRPC: messages that the gateway does not decode."""

from collections.abc import Callable
from typing import NoReturn

from adapters.base import Answer
from adapters.http2.exchange import Exchange
from adapters.http2.status import GrpcError
from adapters.types import APP, Usage

Refuse = Callable[[GrpcError], NoReturn]
"""Raises the typed error of a status other than OK."""


class MessagePieces(Answer):
    """A stream of messages, one piece for each message that `read` returns."""

    __slots__ = ("_exchange", "_first", "_read", "_refuse")

    def __init__(
        self, exchange: Exchange, read: Callable[[bytes], bytes], refuse: Refuse, content_type: str = ""
    ) -> None:
        super().__init__(content_type=content_type, body=None, usage=Usage(exact=True), form=APP)
        self._exchange = exchange
        self._read = read
        self._refuse = refuse
        self._first: bytes | None = None

    async def begun(self) -> "MessagePieces":
        """Wait for the first message or the end of the stream. A failure here permits a retry at another endpoint."""
        try:
            self._first = await self._next()
        except BaseException:
            self._exchange.cancel()
            raise
        if self._first is None:
            self.end(None)
        return self

    async def _next(self) -> bytes | None:
        try:
            message = await self._exchange.read()
        except GrpcError as error:
            self._refuse(error)
        return None if message is None else self._read(message)

    async def __anext__(self) -> bytes:
        piece, self._first = self._first, None
        try:
            if piece is None and not self.ended:
                piece = await self._next()
        except BaseException as error:
            self._exchange.cancel()
            self.end(error)
            raise
        if piece is None:
            self.end(None)
            raise StopAsyncIteration
        self.usage.bytes += len(piece)
        return piece

    async def aclose(self) -> None:
        self._exchange.cancel()
        await super().aclose()
