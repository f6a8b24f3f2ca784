"""The adapters in memory: loaded for their first request, and the least recently used one evicted for another.

An adapter that a request uses is not evicted. A request for one more waits until another request has ended.
"""

import asyncio
import logging
from collections import OrderedDict, deque
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor

from adapters.errors import CapacityError, Unsupported
from runtimes.llm.sequence import StepAdapter
from runtimes.wheels import ModelUnavailable

RETRY_SECONDS = 1.0
log = logging.getLogger(__name__)


class AdapterLease:
    """The use of an adapter by one request. Its end may be reported more than once."""

    def __init__(self, adapter: StepAdapter, release: Callable[[], None]) -> None:
        self.adapter = adapter
        self._release: Callable[[], None] | None = release

    def release(self) -> None:
        """The request has ended."""
        release, self._release = self._release, None
        if release is not None:
            release()


class _Held:
    def __init__(self, loading: "asyncio.Future[StepAdapter]") -> None:
        self.loading = loading
        self.users = 0


class AdapterPool:
    """At most `most` of the adapters `sources`: folders or the Hub's names, by name. It belongs to one event loop.

    `load` reads one in a thread, one at a time. At most `max_waiting` requests wait for a place.
    """

    def __init__(
        self, sources: Mapping[str, str], most: int, load: Callable[[str], StepAdapter], *, max_waiting: int = 256
    ) -> None:
        self.sources = sources
        self._most = most
        self._load = load
        self._max_waiting = max_waiting
        self._held: OrderedDict[str, _Held] = OrderedDict()  # the least recently used one in front
        self._waiting: deque[tuple[str, asyncio.Future[None]]] = deque()  # by the names of their adapters
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="llm-adapters")

    @property
    def names(self) -> list[str]:
        """Those in memory, or on their way there."""
        return list(self._held)

    async def lease(self, name: str) -> AdapterLease:
        """Use the adapter `name`, which is loaded if it is not in memory.

        Raises Unsupported if it cannot be loaded, CapacityError if too many requests wait.
        """
        held = await self._place(name)
        held.users += 1
        try:
            adapter = await asyncio.shield(held.loading)
        except BaseException:
            self._leave(held)
            raise
        return AdapterLease(adapter, lambda: self._leave(held))

    def close(self) -> None:
        """Load no more."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    async def _place(self, name: str) -> _Held:
        first = True
        while True:
            if (held := self._held.get(name)) is not None:
                self._held.move_to_end(name)
                return held
            if len(self._held) < self._most or self._evict():
                return self._begin(name)
            await self._room(name, first)
            first = False

    def _begin(self, name: str) -> _Held:
        held = self._held[name] = _Held(asyncio.ensure_future(self._read(name)))
        held.loading.add_done_callback(lambda loading: self._loaded(name, held))
        # Others that waited for room for this adapter need none any more, wherever they are in the queue.
        sharing = [turn for waiting, turn in self._waiting if waiting == name]
        self._waiting = deque([one for one in self._waiting if one[0] != name])
        for turn in sharing:
            if not turn.done():
                turn.set_result(None)
        return held

    def _evict(self) -> bool:
        """Forget the least recently used adapter that no request uses."""
        name = next((name for name, held in self._held.items() if not held.users and held.loading.done()), None)
        if name is None:
            return False
        del self._held[name]
        log.info("adapter %s was evicted for another", name)
        return True

    async def _room(self, name: str, first: bool) -> None:
        """Wait until an adapter may be evicted. Who waits again is the first in the queue, and is not refused."""
        if first and len(self._waiting) >= self._max_waiting:
            raise CapacityError(
                f"{self._most} adapters are in use, and {len(self._waiting)} requests wait for others; try again later",
                retry_after=RETRY_SECONDS,
            )
        turn = asyncio.get_running_loop().create_future()
        place = name, turn
        (self._waiting.append if first else self._waiting.appendleft)(place)
        try:
            await turn
        except asyncio.CancelledError:
            if place in self._waiting:
                self._waiting.remove(place)
            else:
                self._wake()
            raise

    def _leave(self, held: _Held) -> None:
        held.users -= 1
        if not held.users:
            self._wake()

    def _wake(self) -> None:
        while self._waiting:
            _, turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return

    async def _read(self, name: str) -> StepAdapter:
        loop, source = asyncio.get_running_loop(), self.sources[name]
        try:
            return await loop.run_in_executor(self._thread, self._load, source)
        except (ModelUnavailable, ValueError, OSError, MemoryError, RuntimeError) as error:
            log.error("adapter %s cannot be loaded from %s: %s", name, source, error)
            reason = (error.strerror or "it cannot be read") if isinstance(error, OSError) else str(error)
            message = f"The adapter `{name}` cannot be loaded: {reason.replace(source, name)}."
            raise Unsupported(message, param="model", code="adapter_not_loadable") from None

    def _loaded(self, name: str, held: _Held) -> None:
        if not held.loading.cancelled() and held.loading.exception() is None:
            log.info("adapter %s is loaded", name)
        elif self._held.get(name) is held:  # the next request tries again
            del self._held[name]
        self._wake()
