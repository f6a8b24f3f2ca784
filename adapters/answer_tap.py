"""A stream whose pieces another reader receives too, as the client reads them."""

from typing import Protocol

from adapters.answer import Answer


class PieceSink(Protocol):
    """Receives the pieces of an answer."""

    def add(self, piece: bytes) -> None:
        """Take a piece of the answer."""
        ...


class TappedAnswer(Answer):
    """A stream whose pieces a sink receives too. Reading, ending and cancelling it are those of the inner stream."""

    __slots__ = ("_inner", "_sink")

    def __init__(self, inner: Answer, sink: PieceSink) -> None:
        super().__init__(
            content_type=inner.content_type, body=None, usage=inner.usage, status=inner.status, form=inner.form
        )
        self.endpoint, self.pool, self.headers = inner.endpoint, inner.pool, inner.headers
        self._inner = inner
        self._sink = sink
        inner.when_ended(self._ended)

    def _ended(self, inner: Answer, error: BaseException | None) -> None:
        self.usage = inner.usage
        self.end(error)

    async def __anext__(self) -> bytes:
        piece = await self._inner.__anext__()
        self.usage = self._inner.usage
        self._sink.add(piece)
        return piece

    async def aclose(self) -> None:
        await self._inner.aclose()
