"""The response cache: stored responses, and one computation for identical requests in flight."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Coroutine
from hashlib import blake2b
from math import inf
from struct import Struct
from typing import Any, NamedTuple, Protocol

import numpy as np

from adapters.errors import CapacityError, DeadlineError, InferenceError
from adapters.tensors import Data, Inference, Tensor
from runtimes.tensor.off_loop import LARGE, off_loop
from runtimes.tensor.scheduling.clock import Deadlines, clock
from runtimes.tensor.scheduling.outlet import UnfinishedOutputs
from runtimes.tensor.scheduling.pending import Execution, Recorder
from runtimes.tensor.scheduling.responses import Responses

PART = 8
"""The part of the store that one response may take at most: an eighth."""
OVERHEAD = 512
"""Bytes of a response beside its tensors."""
_LENGTH = Struct("<Q").pack


def digest(owner: int, inference: Inference) -> bytes:
    """The digest of a request: the loaded version, all inputs, and the requested outputs in order."""
    hashed = blake2b(_LENGTH(owner), digest_size=32)
    add = hashed.update
    for tensor in sorted(inference.inputs, key=_name):
        head = f"{tensor.name}\0{tensor.datatype}\0{tensor.shape}".encode()
        add(_LENGTH(len(head)) + head + _LENGTH(len(tensor.data)))
        add(tensor.data)
    add("\0".join(["", *[output.name for output in inference.outputs]]).encode())
    return hashed.digest()


def copies(outputs: list[Tensor]) -> list[Tensor]:
    """The outputs with their own data: those of a batch are one buffer, of which a response is a part."""
    return [Tensor(t.name, t.datatype, t.shape, _copy(t.data), t.parameters) for t in outputs]


def _copy(data: Data) -> Data:
    # numpy copies large arrays without Python's lock.
    return bytes(data) if len(data) < LARGE else np.frombuffer(data, np.uint8).copy().data


def _name(tensor: Tensor) -> str:
    return tensor.name


class _Entry(NamedTuple):
    outputs: list[Tensor]
    size: int
    until: float
    owner: int


class ResponseStore:
    """Responses of all models with a cache; the least recently used one makes room."""

    def __init__(self, max_bytes: int) -> None:
        self.size = 0
        """Bytes in use."""
        self._max_bytes = max_bytes
        self._entries: OrderedDict[bytes, _Entry] = OrderedDict()
        self._owners = 0

    def __len__(self) -> int:
        return len(self._entries)

    def owner(self) -> int:
        """A new number for a loaded version, so that responses of an older version never match."""
        self._owners += 1
        return self._owners

    def get(self, key: bytes, now: float) -> list[Tensor] | None:
        entry = self._entries.get(key)
        if entry is None:
            return None
        if entry.until <= now:
            self._drop(key)
            return None
        self._entries.move_to_end(key)
        return entry.outputs

    def takes(self, size: int) -> bool:
        """Whether a response with so many bytes of tensors can be stored."""
        return OVERHEAD + size <= self._max_bytes // PART

    def put(self, key: bytes, owner: int, outputs: list[Tensor], ttl: float, now: float) -> None:
        """Store copied outputs for `ttl` seconds, 0 for as long as there is room; not if they are too large."""
        size = sum(len(tensor.data) for tensor in outputs)
        if not self.takes(size):
            return
        size += OVERHEAD
        if key in self._entries:
            self._drop(key)
        self._entries[key] = _Entry(outputs, size, now + ttl if ttl > 0 else inf, owner)
        self.size += size
        while self.size > self._max_bytes:
            self._drop(next(iter(self._entries)))

    def forget(self, owner: int) -> None:
        for key in [key for key, entry in self._entries.items() if entry.owner == owner]:
            self._drop(key)

    def _drop(self, key: bytes) -> None:
        self.size -= self._entries.pop(key).size


class Sharer(asyncio.Future[list[Tensor]]):
    """One caller of a request that others may have sent too."""

    __slots__ = ("arrived", "device_seconds", "due", "execution", "flight", "inference")

    def __init__(self, flight: Flight, inference: Inference, arrived: float, due: float) -> None:
        super().__init__(loop=flight.loop)
        self.flight = flight
        self.inference = inference
        self.arrived = arrived
        self.due = due
        self.execution: Execution | None = None
        self.device_seconds = 0.0
        """The execution, for the request that caused it; the others cost nothing."""

    def cancel(self, msg: Any | None = None) -> bool:
        if not super().cancel(msg):
            return False
        self.flight.left()
        return True


class Hashing(asyncio.Task[list[Tensor]]):
    """A large request, whose digest is computed in a thread."""

    def __init__(
        self, work: Coroutine[Any, Any, list[Tensor]], arrived: float, loop: asyncio.AbstractEventLoop
    ) -> None:
        super().__init__(work, loop=loop)
        self.arrived = arrived
        self.execution: Execution | None = None
        self.device_seconds = 0.0


class Flight:
    """One computation, and all requests that wait for it."""

    __slots__ = ("key", "leader", "loop", "sharers", "work")

    def __init__(self, key: bytes, loop: asyncio.AbstractEventLoop) -> None:
        self.key = key
        self.loop = loop
        self.sharers: list[Sharer] = []
        self.leader: Sharer | None = None
        """The owner of the request that is computed; it may leave before the others."""
        self.work: asyncio.Future[list[Tensor]] | None = None

    def left(self) -> None:
        """Remove a caller. The computation ends with its last caller."""
        if self.work is not None and all(sharer.done() for sharer in self.sharers):
            self.work.cancel()


class Uncached(Protocol):
    """The scheduler that computes responses without a cache: a batcher, or an ensemble's."""

    @property
    def waiting(self) -> int: ...

    @property
    def computing(self) -> int: ...

    @property
    def is_idle(self) -> bool: ...

    def infer(self, inference: Inference, deadline: float = inf) -> asyncio.Future[list[Tensor]]: ...

    def holds(self, sequence: int | str) -> bool: ...

    async def drain(self) -> None: ...

    async def aclose(self) -> None: ...


class Cached:
    """A scheduler whose responses are stored. Errors are not stored."""

    @property
    def uncached(self) -> Uncached:
        """The scheduler that computes every response, for requests that are not worth storing."""
        return self._inner

    def __init__(self, inner: Uncached, store: ResponseStore, ttl: float, recorder: Recorder) -> None:
        self._inner = inner
        self._store = store
        self._ttl = ttl
        self._recorder = recorder
        self._owner = store.owner()
        self._loop = asyncio.get_running_loop()
        self._clock = clock(self._loop)
        self._flights: dict[bytes, Flight] = {}
        self._deadlines = Deadlines(self._loop, self._clock, self._end_overdue)
        self._copying: set[asyncio.Task[None]] = set()
        self._closed = False
        self.holds = inner.holds
        self.drain = inner.drain

    @property
    def waiting(self) -> int:
        return self._inner.waiting

    @property
    def computing(self) -> int:
        return self._inner.computing

    @property
    def is_idle(self) -> bool:
        return self._inner.is_idle

    def infer(self, inference: Inference, deadline: float = inf) -> asyncio.Future[list[Tensor]]:
        """See `ModelScheduler`."""
        now = self._clock()
        if sum(len(tensor.data) for tensor in inference.inputs) < LARGE:
            return self._infer(digest(self._owner, inference), inference, deadline, now)
        return Hashing(self._hash_and_infer(inference, deadline, now), now, self._loop)

    async def _hash_and_infer(self, inference: Inference, deadline: float, now: float) -> list[Tensor]:
        key = await off_loop(lambda: digest(self._owner, inference))
        task, future = asyncio.current_task(), self._infer(key, inference, deadline, now)
        try:
            return await future
        finally:
            if isinstance(task, Hashing) and isinstance(future, Sharer):
                task.execution, task.device_seconds = future.execution, future.device_seconds

    def _infer(self, key: bytes, inference: Inference, deadline: float, now: float) -> asyncio.Future[list[Tensor]]:
        outputs = self._store.get(key, now)
        if outputs is not None:
            hit: asyncio.Future[list[Tensor]] = self._loop.create_future()
            hit.set_result(list(outputs))
            self._recorder.cache_hit(self._clock() - now)
            return hit
        flight = self._flights.get(key)
        if flight is not None:
            if deadline <= now:
                raise DeadlineError("The request arrived after its deadline.")
            self._deadlines.by(deadline)
            self._recorder.cache_hit(self._clock() - now)
            return self._join(flight, inference, now, deadline)
        flight = Flight(key, self._loop)
        leader = Sharer(flight, inference, now, deadline)
        self._lead(flight, leader)
        flight.sharers.append(leader)
        self._flights[key] = flight
        self._recorder.cache_missed(self._clock() - now)
        return leader

    def stream(self, inference: Inference, deadline: float = inf) -> Responses:
        """The same as a stream of one response."""
        return Responses(self.infer(inference, deadline))

    async def aclose(self) -> None:
        self._closed = True
        self._deadlines.stop()
        await self._inner.aclose()
        self._store.forget(self._owner)

    def _join(self, flight: Flight, inference: Inference, now: float, deadline: float) -> Sharer:
        sharer = Sharer(flight, inference, now, deadline)
        flight.sharers.append(sharer)
        return sharer

    def _lead(self, flight: Flight, leader: Sharer) -> None:
        flight.leader = leader
        flight.work = self._inner.infer(leader.inference, leader.due)
        flight.work.add_done_callback(lambda work: self._done(flight, work))

    def _done(self, flight: Flight, work: asyncio.Future[list[Tensor]]) -> None:
        error = None if work.cancelled() else work.exception()
        if error is None and not work.cancelled():
            outputs = work.result()
            self._end(flight)
            self._put(flight.key, outputs)
            self._deliver(flight, work)
            for sharer in flight.sharers:
                if not sharer.done():
                    sharer.set_result(outputs if isinstance(outputs, UnfinishedOutputs) else list(outputs))
            flight.sharers = []
        elif isinstance(error, CapacityError | DeadlineError) or error is None:
            # The error belongs to the request that caused the computation, and not to the others.
            self._deliver(flight, work)
            self._pass_on(flight, error)
        else:
            self._end(flight)
            _fail(flight.sharers, error)

    def _put(self, key: bytes, outputs: list[Tensor]) -> None:
        if not isinstance(outputs, UnfinishedOutputs):
            size = _size(outputs)
            if not self._store.takes(size):
                return
            if size < LARGE:
                self._store.put(key, self._owner, copies(outputs), self._ttl, self._clock())
                return
        task = self._loop.create_task(self._copy_and_put(key, outputs))
        self._copying.add(task)
        task.add_done_callback(self._copying.discard)

    async def _copy_and_put(self, key: bytes, outputs: list[Tensor]) -> None:
        if isinstance(outputs, UnfinishedOutputs):
            try:
                outputs = await outputs.finished()
            except InferenceError:
                return  # the request reports it
            if not self._store.takes(_size(outputs)):
                return
        copied = await off_loop(lambda: copies(outputs))
        if not self._closed:
            self._store.put(key, self._owner, copied, self._ttl, self._clock())

    def _deliver(self, flight: Flight, work: asyncio.Future[list[Tensor]]) -> None:
        assert flight.leader is not None
        flight.leader.execution = getattr(work, "execution", None)
        flight.leader.device_seconds = getattr(work, "device_seconds", 0.0)

    def _pass_on(self, flight: Flight, error: BaseException | None) -> None:
        """Compute the requests that still wait, each with its own deadline."""
        if error is not None and flight.leader is not None:
            _fail([flight.leader], error)
        while waiting := [sharer for sharer in flight.sharers if not sharer.done()]:
            try:
                self._lead(flight, waiting[0])
                return
            except InferenceError as refused:
                waiting[0].set_exception(refused)
        self._end(flight)

    def _end(self, flight: Flight) -> None:
        if self._flights.get(flight.key) is flight:
            del self._flights[flight.key]

    def _end_overdue(self, now: float) -> float:
        when = inf
        for flight in list(self._flights.values()):
            for sharer in flight.sharers:
                if sharer.due <= now and not sharer.done():
                    sharer.set_exception(DeadlineError("The request's deadline passed before its answer was ready."))
                elif not sharer.done():
                    when = min(when, sharer.due)
            flight.left()
        return when


def _size(outputs: list[Tensor]) -> int:
    return sum(len(tensor.data) for tensor in outputs)


def _fail(sharers: list[Sharer], error: BaseException) -> None:
    """Fail each request with a new error, because a shared error collects the tracebacks of all."""
    for sharer in sharers:
        if not sharer.done():
            own = error
            if isinstance(error, InferenceError):
                own = type(error)(error.message, code=error.code, param=error.param, retry_after=error.retry_after)
            sharer.set_exception(own)
