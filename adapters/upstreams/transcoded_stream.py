"""A stream of one wire, transcoded to another event by event."""

from adapters.base import Answer
from adapters.errors import BackendError, InferenceError
from adapters.stream import Stream
from adapters.types import Usage
from adapters.wire import sse
from adapters.wire.text.generated_text import StopTexts, TextEncoder, Token


class TranscodedStream(Stream):
    """A stream that transcodes another stream.

    `_take` transcodes an event and sets `_done` at the last event; `_over` handles the end of a stream without a last
    event. If this stream ends before the other, the other is closed at once; else it is read to its end.
    """

    __slots__ = ("_done", "_failure", "_inner", "_left")

    def __init__(self, inner: Answer, usage: Usage) -> None:
        super().__init__(content_type="text/event-stream", usage=usage)
        self._inner = inner
        self._done = False
        self._left = False
        """Whether this stream ended before the other, which is then not read to its end."""
        self._failure: InferenceError | None = None

    def _take(self, data: bytes) -> bytes:
        """Transcode the data of one event to whole events of this wire; may be empty."""
        raise NotImplementedError

    def _over(self) -> bytes:
        """Return the last events after the regular end of the other stream, if no event was the last."""
        raise BackendError("The upstream's stream ended before the end of its answer.")

    async def _next(self, patience: float | None = None) -> bytes:
        while not self._done:
            if self._failure is not None:
                raise self._failure
            if events := await self._more():
                return events
        if not self._left:
            async for _ in self._inner:
                pass
        raise StopAsyncIteration

    async def _more(self) -> bytes:
        try:
            piece = await self._inner.__anext__()
        except StopAsyncIteration:
            events, self._done = self._over(), True
            return events
        finally:
            self.usage.bytes = self._inner.usage.bytes
        transcoded: list[bytes] = []
        try:
            for event in piece.split(b"\n\n"):
                if event and not self._done:
                    data = sse.data_of(event)
                    transcoded.append(self._take(data) if data else event + b"\n\n")
        except InferenceError as failure:
            self._failure = failure  # raised after the events before it
        return b"".join(transcoded)

    async def _drop(self) -> None:
        await self._inner.aclose()


class GeneratedStream(TranscodedStream):
    """A stream of generated text, which ends at the request's stop texts."""

    __slots__ = ("_opened", "_stops", "_teller")

    def __init__(self, inner: Answer, usage: Usage, teller: TextEncoder, stops: list[str]) -> None:
        super().__init__(inner, usage)
        self._teller = teller
        self._stops = StopTexts(stops)
        self._opened = False

    def _add_text(self, text: str, tokens: tuple[Token, ...] = ()) -> bytes:
        """Encode more of the text, except for a possible beginning of a stop text."""
        events = b"" if self._opened else self._teller.opening()
        self._opened = True
        text = self._stops.feed(text)
        if text or (tokens and self._teller.tokens):
            events += self._teller.piece(text, tokens)
        if self._stops.matched:
            self._left = True
            events += self._end("stop")
        return events

    def _end(self, reason: str) -> bytes:
        """Encode the rest of the text and the end of the stream."""
        self._done = True
        rest = self._stops.rest()
        events = self._teller.piece(rest) if rest else b""
        return events + self._teller.end(reason, self.usage)
