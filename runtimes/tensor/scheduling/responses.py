"""The responses to one request, one after the other."""

from __future__ import annotations

import asyncio
from collections import deque

from adapters.tensors import Tensor
from runtimes.tensor.backends.base import StreamControl

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
