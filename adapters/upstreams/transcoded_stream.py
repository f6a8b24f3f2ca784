"""A stream of one wire told in another, event by event."""

from adapters.base import Answer
from adapters.errors import BackendError, InferenceError
from adapters.types import Usage
from adapters.wire import sse
from adapters.wire.text.generated_text import TextEncoder, Token
from adapters.wire.text.stop_texts import StopTexts


class RetoldStream(Answer):
    """What an event becomes is said by `_take`, which sets `_done` at the last one, and `_over` where nothing marks it.

    The other stream is left as soon as this one has ended, and read to its end where it was the one to end it.
    """

    __slots__ = ("_done", "_failure", "_inner", "_left", "_pending")

    def __init__(self, inner: Answer, usage: Usage) -> None:
        super().__init__(content_type="text/event-stream", body=None, usage=usage)
        self._inner = inner
        self._pending = b""
        self._done = False
        self._left = False
        """Whether the other stream is not to be read on: this answer ended before it."""
        self._failure: InferenceError | None = None

    def _take(self, data: bytes) -> bytes:
        """One event, whose data this is, as whole events of the other wire; empty for nothing."""
        raise NotImplementedError

    def _over(self) -> bytes:
        """The other stream has ended, rightly by its own wire, before any event was the last."""
        raise BackendError("The upstream's stream ended before the end of its answer.")

    async def begun(self) -> "RetoldStream":
        """Wait for what the client gets first; what fails here may be tried elsewhere."""
        try:
            while not self._pending and not self._done:
                await self._more()
                if self._failure is not None and not self._pending:
                    raise self._failure
        except BaseException:
            await self._inner.aclose()
            raise
        return self

    async def __anext__(self) -> bytes:
        try:
            while not self._pending and not self._done:
                if self._failure is not None:
                    raise self._failure
                await self._more()
            if self._pending:
                out, self._pending = self._pending, b""
                return out
            if not self._left:
                async for _ in self._inner:
                    pass
            self.end(None)
        except BaseException as error:
            self.end(error)
            raise
        finally:
            if self.ended:
                await self._inner.aclose()
        raise StopAsyncIteration

    async def _more(self) -> None:
        try:
            piece = await self._inner.__anext__()
        except StopAsyncIteration:
            self._pending, self._done = self._over(), True
            return
        finally:
            self.usage.bytes = self._inner.usage.bytes
        told = list[bytes]()
        try:
            for event in piece.split(b"\n\n"):
                if event and not self._done:
                    data = sse.data_of(event)
                    told.append(self._take(data) if data else event + b"\n\n")
        except InferenceError as failure:
            self._failure = failure  # what came before it is told first
        self._pending = b"".join(told)

    async def aclose(self) -> None:
        await self._inner.aclose()
        await super().aclose()


class TextStream(RetoldStream):
    """Generated text, which ends where the request says."""

    __slots__ = ("_opened", "_stops", "_teller")

    def __init__(self, inner: Answer, usage: Usage, teller: TextEncoder, stops: list[str]) -> None:
        super().__init__(inner, usage)
        self._teller = teller
        self._stops = StopTexts(stops)
        self._opened = False

    def _say(self, text: str, tokens: tuple[Token, ...] = ()) -> bytes:
        """More of the text, as far as it is clear that it is told."""
        told = b"" if self._opened else self._teller.opening()
        self._opened = True
        text = self._stops.feed(text)
        if text or (tokens and self._teller.tokens):
            told += self._teller.piece(text, tokens)
        if self._stops.matched:
            self._left = True
            told += self._end("stop")
        return told

    def _end(self, reason: str) -> bytes:
        """Nothing follows."""
        self._done = True
        rest = self._stops.rest()
        told = self._teller.piece(rest) if rest else b""
        return told + self._teller.end(reason, self.usage)
