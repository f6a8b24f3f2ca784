"""A streamed response of server-sent events, forwarded unchanged."""

import asyncio
from contextlib import suppress

from adapters.base import Answer
from adapters.errors import BackendError, InferenceError, TransportError
from adapters.http1.client import ClientResponse
from adapters.types import OPENAI, Form, Usage
from adapters.wire import sse

TAIL_SECONDS = 0.1


class EventStream(Answer):
    """A stream of events. Each protocol overrides `_passes_on`, which sets `_done` at the last event."""

    __slots__ = ("_begun", "_done", "_failure", "_pending", "_response", "_splitter")

    parts_count = False
    """Whether an event is useful without its successors.

    If so, a failure in the same piece as the first event belongs to a stream that has begun: the call is not retried.
    """

    def __init__(self, response: ClientResponse, usage: Usage, form: Form = OPENAI) -> None:
        super().__init__(content_type="text/event-stream", body=None, usage=usage, form=form)
        self._response = response
        self._splitter = sse.Splitter()
        self._begun = False
        self._done = False
        self._failure: InferenceError | None = None
        self._pending = b""

    def _passes_on(self, event: bytes) -> bool:
        """Count the usage of an event. False if the client did not request the event; raises the error of a failure."""
        raise NotImplementedError

    def _worded(self, event: bytes) -> bytes:
        """Encode an event in the client's wire."""
        return event + b"\n\n"

    def _over(self) -> None:
        """Handle the end of a response without a last event."""
        raise TransportError("The upstream's stream ended before the end of its answer.")

    async def begun(self, patience: float) -> "EventStream":
        """Wait up to `patience` seconds for the first event. A failure here permits a retry at another endpoint."""
        loop = asyncio.get_running_loop()
        end = loop.time() + patience
        try:
            while not self._begun:
                if (piece := self._response.take()) is None:
                    await self._response.more(end - loop.time())
                else:
                    self._pending = self._read(piece)
                    self._begun = bool(self._pending) or self._done
        except BaseException:
            self._response.close()
            raise
        return self

    async def __anext__(self) -> bytes:
        try:
            while not self._pending and not self._done:
                if self._failure is not None:
                    raise self._failure
                if (piece := self._response.take()) is None:
                    await self._response.more()
                else:
                    self._pending = self._read(piece)
            if self._pending:
                out, self._pending = self._pending, b""
                self.usage.bytes += len(out)
                return out
            self.end(None)
            await self._finish()
        except BaseException as error:
            self._response.close()
            self.end(error)
            raise
        raise StopAsyncIteration

    async def _finish(self) -> None:
        """Wait a short time for the end of the response, so that its connection can be reused."""
        with suppress(InferenceError):
            await self._response.piece(TAIL_SECONDS)
        self._response.close()

    async def aclose(self) -> None:
        self._response.close()
        await super().aclose()

    def _read(self, piece: bytes) -> bytes:
        """Return the client's bytes of a piece of the response; may be empty."""
        if not piece:
            if self._splitter.halfway:
                raise TransportError("The upstream's stream ended inside an event.")
            self._over()
            return b""
        events = self._fed(piece)
        passed = list[bytes]()
        try:
            for event in events:
                if not self._done and self._passes_on(event):
                    passed.append(self._worded(event))
        except InferenceError as failure:
            if not passed or not (self._begun or self.parts_count):
                raise
            self._failure = failure
        return b"".join(passed)

    def _fed(self, piece: bytes) -> list[bytes]:
        """Return the events that a piece completes."""
        try:
            return self._splitter.feed(piece)
        except sse.EventTooLarge as error:
            raise BackendError(f"The upstream's stream cannot be read: {error}.") from None
