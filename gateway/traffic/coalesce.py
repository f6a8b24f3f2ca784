"""One upstream call and all readers of its answer."""

import asyncio
from collections.abc import Callable

from adapters.base import Answer, Upstream
from adapters.call import Call
from adapters.errors import CapacityError, ClientGone
from adapters.requests import ModelRequest
from adapters.types import Usage

AHEAD = 256 * 1024
"""Bytes that are read ahead of the fastest reader."""
NOTHING = Usage(exact=True)


class Flight:
    """A call in a separate task, which ends with its answer, or when the last reader disconnects.

    It stores the answer from the first piece on, so that a late reader receives all of it. Beyond `most` bytes no
    reader may join, and only the last `most` bytes are stored: a reader that falls behind them fails. The call is read
    at the pace of the fastest reader, so a slow reader delays no other.
    """

    def __init__(
        self,
        upstream: Upstream,
        request: ModelRequest,
        call: Call,
        most: int,
        landed: "Callable[[Flight], None]",
    ) -> None:
        self.call = call
        self.answer: Answer | None = None
        self.error: BaseException | None = None
        self.over = False
        self.readers: list[FlightReader] = []
        self.pieces: list[bytes] = []
        self._most = most
        self._size = 0
        self._dropped = 0  # the number of dropped pieces, and below their bytes
        self._dropped_size = 0
        self._paid = False
        self._loop = asyncio.get_running_loop()
        self._waiting: list[asyncio.Future[None]] = []  # readers that wait for a piece
        self._paused: asyncio.Future[None] | None = None  # the call, which waits for its readers
        self._landed = landed
        self._own = tuple(call.ignored.ignored)
        self._task = self._loop.create_task(self._run(upstream, request))
        self._task.add_done_callback(self._ended)  # runs even if the task is cancelled before it began

    @property
    def is_whole(self) -> bool:
        """Whether every piece is still stored."""
        return not self._dropped and self._size <= self._most

    @property
    def ignored(self) -> tuple[str, ...]:
        """Fields of the request that the model's server ignored."""
        return tuple(name for name in self.call.ignored.ignored if name not in self._own)

    # ── the call ──────────────────────────────────────────────────────────────────────────────────────

    async def _run(self, upstream: Upstream, request: ModelRequest) -> None:
        self.answer = answer = await upstream.call(request, self.call)
        if answer.body is not None:
            self._take(answer.body)
        else:
            await self._read(answer)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self.error = ClientGone("Every client closed the connection.") if task.cancelled() else task.exception()
        self.over = True
        self._wake()
        self._landed(self)

    async def _read(self, answer: Answer) -> None:
        self._wake()
        try:
            async for piece in answer:
                self._take(piece)
                self._wake()
                while self._size - max((reader.taken for reader in self.readers), default=0) > AHEAD:
                    self._paused = self._loop.create_future()
                    await self._paused
        finally:
            await answer.aclose()

    def _take(self, piece: bytes) -> None:
        self.pieces.append(piece)
        self._size += len(piece)
        quickest = max((reader.at for reader in self.readers), default=0)
        while self._size - self._dropped_size > self._most and self._dropped < quickest:
            self._dropped += 1
            self._dropped_size += len(self.pieces.pop(0))

    # ── its readers ───────────────────────────────────────────────────────────────────────────────────

    async def begun(self) -> Answer:
        """Wait for the answer to begin. Raises the error of the call."""
        while self.answer is None and not self.over:
            await self._change()
        if self.answer is None:
            assert self.error is not None
            raise self.error
        return self.answer

    async def next(self, reader: "FlightReader") -> bytes:
        """All pieces since the last call of `reader`; empty at the end. Raises the error that broke the answer."""
        while True:
            if reader.at < self._dropped:
                raise CapacityError("This client fell too far behind a shared response.", code="slow_reader")
            if new := self.pieces[reader.at - self._dropped :]:
                reader.at += len(new)
                data = new[0] if len(new) == 1 else b"".join(new)
                reader.taken += len(data)
                self._resume()
                return data
            if self.error is not None:
                raise self.error
            if self.over:
                return b""
            await self._change()

    async def leave(self, reader: "FlightReader", *, whole: bool) -> Usage:
        """Remove the reader. Returns its usage: the first reader pays for all, or the next if it leaves early.

        The last reader cancels the call and waits for its end.
        """
        first = self.readers[0] is reader
        self.readers.remove(reader)
        self._resume()
        if not self.readers and not self.over:
            self._task.cancel()
            await asyncio.wait((self._task,))
        if self._paid or self.answer is None or (self.readers and not (first and whole)):
            return NOTHING
        self._paid = True
        return self.answer.usage

    async def _change(self) -> None:
        future = self._loop.create_future()
        self._waiting.append(future)
        await future

    def _resume(self) -> None:
        if self._paused is not None and not self._paused.done():
            self._paused.set_result(None)

    def _wake(self) -> None:
        waiting, self._waiting = self._waiting, []
        for future in waiting:
            if not future.done():
                future.set_result(None)


class FlightReader(Answer):
    """One client's view of a flight."""

    __slots__ = ("_flight", "_left", "at", "taken")

    def __init__(self, flight: Flight) -> None:
        super().__init__(content_type="", body=None)
        self.at = 0
        """The number of pieces read."""
        self.taken = 0
        """The number of bytes read."""
        self._left = False
        self._flight = flight
        flight.readers.append(self)

    async def begun(self) -> Answer:
        """Wait for the answer to begin. Raises the error of the call."""
        flight = self._flight
        try:
            begun = await flight.begun()
        except BaseException as error:
            await self._leave(error)
            raise
        self.status, self.content_type, self.form = begun.status, begun.content_type, begun.form
        self.pool, self.endpoint = begun.pool, begun.endpoint
        if begun.body is not None:
            self.body = begun.body
            await self._leave(None)
        return self

    async def __anext__(self) -> bytes:
        try:
            data = await self._flight.next(self)
        except BaseException as error:
            await self._leave(error)
            raise
        if not data:
            await self._leave(None)
            raise StopAsyncIteration
        return data

    async def _leave(self, error: BaseException | None) -> None:
        if self._left:
            return
        self._left = True
        try:
            self.usage = await self._flight.leave(self, whole=error is None)
        finally:
            self.end(error)

    async def aclose(self) -> None:
        await self._leave(ClientGone("the client closed the connection"))
