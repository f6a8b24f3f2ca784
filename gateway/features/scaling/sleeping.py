"""A pool of servers that sleep while they are not needed: as many are awake as the demand needs."""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any

import msgspec

from config.schema.config import PoolConfig
from gateway.features.scaling.external import ExternalScale
from gateway.features.scaling.sleep_orders import HttpSleepOrders, SleepError, SleepLoad, SleepOrders
from gateway.traffic.discovery.target import DiscoveredEndpoint
from gateway.traffic.fleet.standing import PoolDemand, PoolStanding
from policies.scaling.scaler import SleepFacts, chosen

log = logging.getLogger(__name__)
LOST_READS = 3
"""Failed reads after which a server is unreachable."""
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 15.0
"""Seconds before an order that failed is repeated; they double."""


@dataclass(slots=True)
class SleepServer:
    """What is known of one server. Times are those of the pool's clock."""

    address: str
    asleep: bool | None = None
    """None before the first report."""
    lost: int = 0
    """Failed reads in a row."""
    load: SleepLoad | None = None
    used_at: float = inf
    """The last time at which a request of any client was seen, or may have been."""
    waking_since: float | None = None
    error: str = ""
    """The reason why the last wake-up failed."""
    pause: float = 0.0
    retry_at: float = 0.0
    logged: str = ""

    @property
    def reachable(self) -> bool:
        return self.lost < LOST_READS

    @property
    def may_be_asleep(self) -> bool:
        """Whether it sleeps, or has not reported yet."""
        return self.asleep or (self.asleep is None and self.reachable)

    @property
    def trouble(self) -> str:
        """The reason why it does not serve."""
        return self.error or ("" if self.reachable else "does not answer")


class SleepScale(ExternalScale):
    """Decides as for a runtime. The servers always run: those that are not needed receive no new requests, and sleep
    when no client has used them for `hold`."""

    def __init__(self, pool: PoolConfig, orders: SleepOrders | None = None) -> None:
        self._servers: dict[str, SleepServer] = {}
        self._sent: frozenset[str] = frozenset()
        self._confirmed: frozenset[str] = frozenset()
        """Addresses to which the processes send no new requests."""
        self._reads: dict[str, asyncio.Task[None]] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        """Orders in progress by address."""
        self._orders = orders or HttpSleepOrders(lambda: self._pool)
        super().__init__(pool)

    def configure(self, pool: PoolConfig) -> None:
        super().configure(pool)
        assert pool.scale is not None
        assert pool.scale.sleep is not None
        self._pool, self._level, self._hold = pool, pool.scale.sleep, pool.scale.hold
        written = dict.fromkeys(DiscoveredEndpoint.of(each).url for each in pool.endpoints)
        self._servers = {address: self._servers.get(address) or SleepServer(address) for address in written}

    @property
    def needed(self) -> tuple[str, ...]:
        """The servers that should be awake."""
        servers = self._servers.values()
        facts = (SleepFacts(s.address, s.reachable, bool(s.error), s.asleep is not False) for s in servers)
        return chosen(facts, self.decision.replicas)

    # ── what the processes do ─────────────────────────────────────────────────────────────────────────

    def standing(self, now: float) -> PoolStanding:
        needed = self.needed
        self._sent = frozenset(a for a, server in self._servers.items() if a not in needed or server.may_be_asleep)
        return msgspec.structs.replace(super().standing(now), sleeping=tuple(sorted(self._sent)))

    def sample(self, demands: Sequence[PoolDemand], running: Mapping[int, Any], now: float) -> None:
        super().sample(demands, running, now)
        self._confirmed = self._sent

    # ── what the servers do ───────────────────────────────────────────────────────────────────────────

    def follow(self, clock: Callable[[], float]) -> None:
        """Begin to read the state of every server, and the orders that are due then. A server that does not respond
        delays no other."""
        for server in self._servers.values():
            if server.address not in self._reads:
                _track(self._reads, server.address, self._visit(server, clock))

    async def _visit(self, server: SleepServer, clock: Callable[[], float]) -> None:
        await self._read(server, clock)
        now = clock()
        if server.address in self._tasks or not server.reachable or now < server.retry_at:
            return
        if server.asleep and server.address in self.needed:
            server.waking_since = now
            _track(self._tasks, server.address, self._wake(server, clock))
        elif server.asleep is False and self._may_sleep(server, now):
            _track(self._tasks, server.address, self._put_to_sleep(server, clock))

    async def _read(self, server: SleepServer, clock: Callable[[], float]) -> None:
        try:
            asleep = await self._orders.asleep(server.address)
        except SleepError as error:
            server.lost += 1
            if server.lost == LOST_READS and server.address not in self._tasks:
                log.warning("pool %s: %s: %s", self._name, server.address, error)
            return
        server.lost = 0
        if asleep is not server.asleep:
            log.info("pool %s: %s %s", self._name, server.address, "sleeps" if asleep else "is awake")
        server.asleep, load = asleep, None
        if not asleep:
            server.waking_since, server.error = None, ""
            try:
                load = await self._orders.load(server.address)
            except SleepError as error:
                self._report(server, str(error))
        self._used(server, load, clock())

    def _used(self, server: SleepServer, load: SleepLoad | None, now: float) -> None:
        """Note whether a client may have used the server since the last read."""
        if load is None or load.running or load != server.load:
            server.used_at = now
        server.load = load

    def _may_sleep(self, server: SleepServer, now: float) -> bool:
        address = server.address
        rests = address in self._confirmed and address in self._sent and address not in self.needed
        return rests and now - server.used_at >= self._hold

    async def _wake(self, server: SleepServer, clock: Callable[[], float]) -> None:
        try:
            await self._orders.wake(server.address, self._level)
            server.error, server.pause = "", 0.0
        except SleepError as error:
            server.error = str(error)
            self._failed(server, error, clock())
        finally:
            server.waking_since = None

    async def _put_to_sleep(self, server: SleepServer, clock: Callable[[], float]) -> None:
        try:
            self._used(server, await self._orders.load(server.address), clock())
            if self._may_sleep(server, clock()):
                await self._orders.sleep(server.address, self._level)
            server.pause = 0.0
        except SleepError as error:
            self._failed(server, error, clock())

    def _failed(self, server: SleepServer, error: SleepError, now: float) -> None:
        server.pause = min(2 * server.pause or FIRST_PAUSE, LONGEST_PAUSE)
        server.retry_at = now + server.pause
        self._report(server, str(error))

    def _report(self, server: SleepServer, message: str) -> None:
        """Log a failure once."""
        if server.logged != message:
            log.error("pool %s: %s: %s", self._name, server.address, message)
        server.logged = message

    def close(self) -> None:
        """Cancel orders in progress."""
        for task in (*self._tasks.values(), *self._reads.values()):
            task.cancel()

    # ── reports ───────────────────────────────────────────────────────────────────────────────────────

    @property
    def count(self) -> int:
        """The servers that are needed and work."""
        return sum(not self._servers[address].trouble for address in self.needed)

    def _starting(self) -> dict[int, float]:
        needed = (self._servers[address] for address in self.needed)
        waking = [s.waking_since for s in needed if s.waking_since is not None and not s.error]
        if waking or self.failure:
            return dict(enumerate(waking))
        return super()._starting()

    @property
    def failure(self) -> str:
        needed = self.needed
        if not needed or self.count:
            return ""
        number = list(self._servers).index(needed[0])
        return f"endpoint {number} of the pool: {self._servers[needed[0]].trouble}"

    def describe(self) -> dict[str, Any]:
        return {**super().describe(), "asleep": sum(server.asleep is True for server in self._servers.values())}


def _track(tasks: dict[str, asyncio.Task[None]], address: str, work: Coroutine[Any, Any, None]) -> None:
    """Run `work` as the task of an address until its end."""
    task = tasks[address] = asyncio.create_task(work)
    task.add_done_callback(lambda _: tasks.pop(address, None))
