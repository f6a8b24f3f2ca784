"""The responses to one request, one after the other."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator

from adapters.tensors import Tensor
from runtimes.tensor.interfaces import StreamControl
from runtimes.tensor.scheduling.pending import Pending


class Delivery:
    """Delivers each outcome at once."""

    def __iter__(self) -> Iterator[Pending]:
        """Requests whose outcome may be held."""
        return iter(())

    def enter(self, pending: Pending) -> None:
        """Record a request that has arrived."""

    def answer(self, pending: Pending, outputs: list[Tensor]) -> None:
        pending.answer(outputs)

    def fail(self, pending: Pending, error: Exception) -> None:
        pending.fail(error)

    def release(self) -> None:
        """Handle a request that was cancelled or failed."""


class OrderedDelivery(Delivery):
    """Holds outcomes until those of earlier requests. Cancelled and overdue requests hold none."""

    def __init__(self) -> None:
        self._line: deque[Pending] = deque()
        self._outcomes: dict[Pending, list[Tensor] | Exception] = {}

    def __iter__(self) -> Iterator[Pending]:
        return iter(self._line)

    def enter(self, pending: Pending) -> None:
        self._line.append(pending)

    def answer(self, pending: Pending, outputs: list[Tensor]) -> None:
        self._outcomes[pending] = outputs
        self.release()

    def fail(self, pending: Pending, error: Exception) -> None:
        self._outcomes[pending] = error
        self.release()

    def release(self) -> None:
        """Release all outcomes whose turn has come."""
        while self._line and (self._line[0].done() or self._line[0] in self._outcomes):
            first = self._line.popleft()
            outcome = self._outcomes.pop(first, None)
            if isinstance(outcome, Exception):
                first.fail(outcome)
            elif outcome is not None:
                first.answer(outcome)


MOST = 8
"""The number of unread responses at which the model waits."""
FEW = 2
"""The number of unread responses at which the model continues."""


class Responses:
    """An async iterator of responses, each a list of outputs. It ends after the last, or raises the failure. A reader
    that stops early calls `cancel`.

    `ended` is the future of its end: it may be awaited, and cancelling it cancels the stream. Its result, if
    any, is the last response.
    """

    def __init__(self, ended: asyncio.Future[list[Tensor]]) -> None:
        self.ended = ended
        self.count = 0
        """The number of responses so far."""
        self._buffer: deque[list[Tensor]] = deque()
        self._source: StreamControl | None = None
        self._paused = False
        self._exhausted = False
        self._reader: asyncio.Future[None] | None = None
        ended.add_done_callback(self._wake_reader)

    def __aiter__(self) -> Responses:
        return self

    async def __anext__(self) -> list[Tensor]:
        while not self._buffer:
            if self.ended.done():
                return self._last()
            self._reader = asyncio.get_running_loop().create_future()
            await self._reader
        response = self._buffer.popleft()
        if self._paused and len(self._buffer) <= FEW:
            self._paused = False
            if self._source is not None:
                self._source.resume()
        return response

    def _last(self) -> list[Tensor]:
        last = self.ended.result()  # raises why, if it failed or was cancelled
        if not last or self._exhausted:
            raise StopAsyncIteration
        self._exhausted = True
        self.count += 1
        return last

    def cancel(self) -> None:
        """Stop the model, because no further response is read. Idempotent."""
        self._buffer.clear()
        self.ended.cancel()

    # ── the model's side ──────────────────────────────────────────────────────────────────────────────

    def begun(self, source: StreamControl) -> None:
        self._source = source
        if self._paused:
            source.pause()

    def push(self, response: list[Tensor]) -> None:
        if self.ended.done():
            return
        self.count += 1
        self._buffer.append(response)
        if not self._paused and len(self._buffer) >= MOST:
            self._paused = True
            if self._source is not None:
                self._source.pause()
        self._wake_reader()

    def _wake_reader(self, *_: object) -> None:
        if self._reader is not None and not self._reader.done():
            self._reader.set_result(None)
