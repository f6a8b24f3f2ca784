"""A streamed answer of server-sent events, which go on as they came."""

import asyncio
from contextlib import suppress

from adapters.base import Answer
from adapters.errors import BackendError, InferenceError, TransportError
from adapters.http1.client import ClientResponse
from adapters.types import OPENAI, Form, Usage
from adapters.wire import sse

TAIL_SECONDS = 0.1


class EventStream(Answer):
    """What an event means is its protocol's business: `_passes_on` says, and sets `_done` at the last one."""

    __slots__ = ("_begun", "_done", "_failure", "_pending", "_response", "_splitter")

    parts_count = False
    """Whether an event is worth something without those after it: then a failure that comes together with the first
    event is one of a stream that had begun, and the call is not tried elsewhere."""

    def __init__(self, response: ClientResponse, usage: Usage, form: Form = OPENAI) -> None:
        super().__init__(content_type="text/event-stream", body=None, usage=usage, form=form)
        self._response = response
        self._splitter = sse.Splitter()
        self._begun = False
        self._done = False
        self._failure: InferenceError | None = None
        self._pending = b""

    def _passes_on(self, event: bytes) -> bool:
        """Count what an event carries; False for one that the client did not ask for. Raises where it is a failure."""
        raise NotImplementedError

    def _worded(self, event: bytes) -> bytes:
        """What goes on of an event, in the client's own wire."""
        return event + b"\n\n"

    def _over(self) -> None:
        """The response has ended, before any event was the last."""
        raise TransportError("The upstream's stream ended before the end of its answer.")

    async def begun(self, patience: float) -> "EventStream":
        """Wait `patience` seconds for the first event; what fails here may be tried elsewhere."""
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
        """The client has it all. What ends the response follows, and then the connection can be used again."""
        with suppress(InferenceError):
            await self._response.piece(TAIL_SECONDS)
        self._response.close()

    async def aclose(self) -> None:
        self._response.close()
        await super().aclose()

    def _read(self, piece: bytes) -> bytes:
        """What a piece of the response holds for the client; may be nothing."""
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
        """The events that a piece completes."""
        try:
            return self._splitter.feed(piece)
        except sse.EventTooLarge as error:
            raise BackendError(f"The upstream's stream cannot be read: {error}.") from None
