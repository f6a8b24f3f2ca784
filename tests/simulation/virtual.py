"""Time and network in memory: asyncio's own loop, whose clock jumps from one timer to the next.

A story of minutes runs in milliseconds, and the same way each time. Two things that real time hides are errors
here: a wait that nothing will ever end, and a loop that turns without any time passing.
"""

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from heapq import heappush
from itertools import count
from typing import Any, Literal, TypeVar

T = TypeVar("T")
TURNS = 50_000
THREAD = 0.02
Protocols = Callable[[], asyncio.Protocol]
Reach = Literal["up", "refuses", "silent"]
"""The fate of a new connection: accepted, refused at once, or left without an answer."""


class Stuck(BaseException):
    """Every task waits and no timer is set, or no task waits and no time passes."""


class _Clock(selectors.SelectSelector):
    """Waits for no file: where the loop would sleep, the time passes at once."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self._turns = 0

    def select(self, timeout: float | None = None) -> list[Any]:
        if timeout is None:
            raise Stuck(f"at {self.now:.3f} s: all wait, and nothing will end it")
        if timeout > 0:
            self.now += timeout
            self._turns = 0
        else:
            self._turns += 1
            if self._turns > TURNS:
                raise Stuck(f"at {self.now:.3f} s: the loop turns and turns, and no time passes")
        return []


class _OrderedTimer(asyncio.TimerHandle):
    """A timer that runs after those of the same moment that were set before."""

    __slots__ = ("number",)
    number: int

    def __lt__(self, other: Any) -> bool:
        mine: tuple[float, int] = (self.when(), self.number)
        return mine < (other.when(), other.number)


class VirtualLoop(asyncio.SelectorEventLoop):
    """Its connections and listeners are those of `network`; there are no threads and no files.

    `ordered`: timers of one moment run in the order in which they were set, whatever other timers there are.
    """

    def __init__(self, *, ordered: bool = False) -> None:
        self._clock = _Clock()
        self._timers = count() if ordered else None
        super().__init__(self._clock)
        self.network = Network(self)
        self.errors: list[dict[str, Any]] = []
        self.set_exception_handler(lambda _, context: self.errors.append(context))

    def time(self) -> float:
        return self._clock.now

    def call_at(  # type: ignore[override]
        self, when: float, callback: Any, *args: Any, context: Any = None
    ) -> asyncio.TimerHandle:
        if self._timers is None:
            return super().call_at(when, callback, *args, context=context)
        timer = _OrderedTimer(when, callback, args, self, context)
        timer.number = next(self._timers)
        heappush(self._scheduled, timer)  # type: ignore[attr-defined]
        timer._scheduled = True  # type: ignore[attr-defined]
        return timer

    async def create_connection(self, protocol_factory: Any, host: Any = None, port: Any = None, **_: Any) -> Any:
        return await self.network.connect(protocol_factory, (host, port))

    async def create_server(self, protocol_factory: Any, host: Any = None, port: Any = None, **_: Any) -> Any:
        return self.network.listen(protocol_factory, (host, port))

    def run_in_executor(self, executor: Any, func: Any, *args: Any) -> asyncio.Future[Any]:  # type: ignore[override]
        """Call a function at once, and return its result a little later: a thread takes its time."""
        future = self.create_future()
        try:
            outcome, set_outcome = func(*args), future.set_result
        except Exception as error:
            outcome, set_outcome = error, future.set_exception
        self.call_later(THREAD, lambda: None if future.done() else set_outcome(outcome))
        return future


def run(main: Callable[[VirtualLoop], Coroutine[Any, Any, T]], *, ordered: bool = False) -> T:
    """Run to the end on a loop of its own."""
    loop = VirtualLoop(ordered=ordered)
    try:
        return loop.run_until_complete(main(loop))
    finally:
        loop.close()


Address = tuple[str, int]


class Listener:
    """The listener of one address."""

    def __init__(self, network: "Network", factory: Protocols, address: Address) -> None:
        self._network = network
        self.factory = factory
        self.address = address
        self.reach: Reach = "up"
        self.sockets = [self]

    def getsockname(self) -> Address:
        return self.address

    def close(self) -> None:
        self._network.listeners.pop(self.address, None)


class Network:
    """The listeners by address, and pairs of wires between connected peers."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._loop = loop
        self.listeners: dict[Address, Listener] = {}

    def listen(self, factory: Protocols, address: Address) -> Listener:
        host, port = address
        listener = self.listeners[host, port or 80] = Listener(self, factory, (host, port or 80))
        return listener

    async def connect(self, factory: Protocols, address: Address) -> tuple["Wire", asyncio.Protocol]:
        await asyncio.sleep(0)
        listener = self.listeners.get(address)
        if listener is not None and listener.reach == "silent":
            await asyncio.sleep(3600.0)
        if listener is None or listener.reach != "up":
            raise ConnectionRefusedError(address)
        near, far = Wire(self._loop, factory()), Wire(self._loop, listener.factory())
        near.peer, far.peer = far, near
        far.protocol.connection_made(far)
        near.protocol.connection_made(near)
        return near, near.protocol


class Wire(asyncio.Transport):
    """One end of a connection. What is written arrives at the other end in the loop's next turn, in order."""

    HIGH_WATER = 64 * 1024
    peer: "Wire"

    def __init__(self, loop: asyncio.AbstractEventLoop, protocol: asyncio.Protocol) -> None:
        super().__init__()
        self._loop = loop
        self.protocol = protocol
        self._inbox: list[bytes | None] = []  # None is the end
        self._held = 0
        self._reading = True
        self._closing = False
        self._lost = False
        self._finished = False
        self._paused_by_peer = False

    # ── what protocols do with it ─────────────────────────────────────────────────────────────────────

    def write(self, data: Any) -> None:
        if not self._closing and not self._finished and data:
            self._loop.call_soon(self.peer._arrive, bytes(data))
            self.peer._held += len(data)
            if self.peer._held > self.HIGH_WATER and not self._paused_by_peer:
                self._paused_by_peer = True
                self.protocol.pause_writing()

    def write_eof(self) -> None:
        if not self._finished:
            self._finished = True
            self._loop.call_soon(self.peer._arrive, None)

    def can_write_eof(self) -> bool:
        return True

    def close(self) -> None:
        if not self._closing:
            self.write_eof()
            self._closing = True
            self._loop.call_soon(self._lose, None)

    def abort(self) -> None:
        self.drop(None)

    def drop(self, error: Exception | None) -> None:
        """End at once. The other end sees a reset; this one sees `error`."""
        if not self._lost:
            self._closing = True
            self._loop.call_soon(self._lose, error)
            self._loop.call_soon(self.peer._lose, ConnectionResetError())

    def is_closing(self) -> bool:
        return self._closing

    def pause_reading(self) -> None:
        self._reading = False

    def resume_reading(self) -> None:
        self._reading = True
        self._loop.call_soon(self._read)

    def get_write_buffer_size(self) -> int:
        return self.peer._held

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return ("10.0.0.9", 5000) if name == "peername" else default

    # ── what the other end does ───────────────────────────────────────────────────────────────────────

    def _arrive(self, data: bytes | None) -> None:
        self._inbox.append(data)
        self._read()

    def _read(self) -> None:
        while self._inbox and self._reading and not self._lost:
            data = self._inbox.pop(0)
            if data is None:
                if not self.protocol.eof_received():
                    self.close()
                continue
            self._consumed(len(data))
            if not self._closing:
                self.protocol.data_received(data)

    def _consumed(self, size: int) -> None:
        self._held -= size
        if self.peer._paused_by_peer and self._held <= self.HIGH_WATER // 4:
            self.peer._paused_by_peer = False
            if not self.peer._lost:
                self.peer.protocol.resume_writing()

    def _lose(self, error: Exception | None) -> None:
        if not self._lost:
            self._lost = self._closing = True
            self.protocol.connection_lost(error)
