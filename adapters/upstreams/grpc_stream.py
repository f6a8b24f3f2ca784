"""A streamed response over gRPC: one piece for each message."""

from collections.abc import Callable
from typing import NoReturn

from adapters.http2.exchange import Exchange
from adapters.http2.status import GrpcError
from adapters.stream import Stream
from adapters.types import Form, Usage

Refuse = Callable[[GrpcError], NoReturn]
"""Raises the typed error of a status other than OK."""


class GrpcStream(Stream):
    """The messages of a call. A status before the first message is raised unchanged: the adapter handles it."""

    __slots__ = ("_begun", "_exchange", "_refuse")

    def __init__(self, exchange: Exchange, refuse: Refuse, *, content_type: str, usage: Usage, form: Form) -> None:
        super().__init__(content_type=content_type, usage=usage, form=form)
        self._exchange = exchange
        self._refuse = refuse
        self._begun = False

    def _read(self, message: bytes) -> bytes:
        """Return the piece of a message. Raises the error of a message that reports a failure."""
        return message

    def _over(self) -> None:
        """Handle the end of the response."""

    async def _next(self, patience: float | None = None) -> bytes:
        try:
            message = await self._exchange.read()
        except GrpcError as error:
            if self._begun:
                self._refuse(error)
            raise
        if message is None:
            self._over()
            raise StopAsyncIteration
        piece = self._read(message)
        self._begun = True
        self.usage.bytes += len(piece)
        return piece

    async def _drop(self) -> None:
        self._exchange.cancel()
