"""A streamed response of server-sent events, forwarded unchanged.

Events that precede the model's output are held back until it begins: until then, the request may be retried.
"""

from contextlib import suppress

from adapters.errors import BackendError, InferenceError, TransportError
from adapters.http1.client import ClientResponse
from adapters.http1.exchange import Forward
from adapters.stream import Stream
from adapters.types import OPENAI, Form, Usage
from adapters.wire import sse


class ForwardedBody(Stream):
    """A body in the pieces in which it arrives."""

    __slots__ = ("_response",)

    def __init__(
        self, response: ClientResponse, *, content_type: str, usage: Usage, form: Form, status: int = 200
    ) -> None:
        super().__init__(content_type=content_type, usage=usage, form=form, status=status)
        self._response = response

    async def _next(self, patience: float | None = None) -> bytes:
        response = self._response
        while (piece := response.take()) is None:
            await response.more(patience)
        if not piece:
            raise StopAsyncIteration
        self.usage.bytes += len(piece)
        return piece

    async def _drop(self) -> None:
        self._response.close()


TAIL_SECONDS = 0.1
MOST_HELD = 64 * 1024
"""Bytes of opening events that are held back."""


class EventStream(ForwardedBody):
    """A stream of events. Each protocol overrides `_passes_on`, which sets `_done` at the last event."""

    __slots__ = (
        "_before_last",
        "_begun",
        "_done",
        "_failure",
        "_forward",
        "_head",
        "_last",
        "_opening",
        "_splitter",
        "_started",
    )

    rewords = False
    """Whether `_worded` encodes events in another wire."""
    parts_count = False
    """Whether an event is useful without its successors.

    If so, a failure in the same piece as the first event belongs to a stream that has begun: the call is not retried.
    """

    def __init__(
        self,
        response: ClientResponse,
        usage: Usage,
        form: Form = OPENAI,
        splitter: sse.EventSplitter | None = None,
    ) -> None:
        super().__init__(response, content_type="text/event-stream", usage=usage, form=form)
        self._splitter = splitter or sse.Splitter(response.max_answer)
        self._begun = False
        self._started = True
        """Whether the model's output has begun. A subclass that recognises opening events begins with False."""
        self._opening = b""
        self._done = False
        self._failure: InferenceError | None = None
        self._forward: Forward | None = None
        """Takes pieces that need no examination, while this stream waits for the next one."""
        self._head = b""
        """The first event."""
        self._before_last: list[bytes] = []
        self._last: list[bytes] = []
        """The events of the last pieces that had any."""

    @property
    def excerpts(self) -> tuple[bytes, ...]:
        return (self._head, *[*self._before_last, *self._last][-3:])

    def _passes_on(self, event: bytes) -> bool:
        """Count the usage of an event. False if the client did not request the event; raises the error of a failure."""
        raise NotImplementedError

    def _worded(self, event: bytes) -> bytes:
        """Encode an event in the client's wire. Called if `rewords`."""
        raise NotImplementedError

    def _over(self) -> None:
        """Handle the end of a response without a last event."""
        raise TransportError("The upstream's stream ended before the end of its answer.")

    async def _next(self, patience: float | None = None) -> bytes:
        """Return the events of the next piece that has any. Whatever arrives is a sign of life: each silence may last
        `patience` seconds."""
        response = self._response
        while not self._done:
            if self._failure is not None:
                raise self._failure
            if (piece := response.take()) is None:
                await response.more(patience, self._forward)
            elif events := self._read(piece):
                self._begun = True
                self.usage.bytes += len(events)
                return events
        raise StopAsyncIteration

    async def _finish(self) -> None:
        """Wait a short time for the end of the response, so that its connection can be reused."""
        with suppress(InferenceError):
            await self._response.piece(TAIL_SECONDS)
        self._forward = None
        self._response.close()

    async def _drop(self) -> None:
        self._forward = None  # breaks a reference cycle with the connection
        await super()._drop()

    def _read(self, piece: bytes) -> bytes:
        """Return the client's bytes of a piece of the response; may be empty."""
        if not piece:
            if self._splitter.halfway:
                raise TransportError("The upstream's stream ended inside an event.")
            self._over()
            return b""
        if events := self._split(piece):
            self._before_last, self._last = self._last, events
            if not self._head:
                self._head = events[0]
        passed: list[bytes] = []
        try:
            for event in events:
                if not self._done and self._passes_on(event):
                    passed.append(self._worded(event) if self.rewords else event + b"\n\n")  # noqa: PERF401
        except InferenceError as failure:
            if not passed or not (self._begun or self.parts_count):
                raise
            self._failure = failure
        joined = passed[0] if len(passed) == 1 else b"".join(passed)
        return joined if self._started and not self._opening else self._held(joined)

    def _split(self, piece: bytes) -> list[bytes]:
        """Return the events that a piece completes."""
        try:
            return self._splitter.feed(piece)
        except sse.EventTooLarge as error:
            raise BackendError(f"The upstream's stream cannot be read: {error}, the pool's `max_answer`.") from None

    def _held(self, events: bytes) -> bytes:
        """Return the events with the held ones before them; none before the model's output begins."""
        events = self._opening + events if self._opening else events
        is_over = self._started or self._done or len(events) > MOST_HELD
        self._opening = b"" if is_over else events
        return events if is_over else b""
