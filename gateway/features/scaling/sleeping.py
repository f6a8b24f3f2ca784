"""A pool of servers that sleep while they are not needed: as many are awake as the demand needs.

(vLLM: `vllm/entrypoints/serve/dev/sleep/api_router.py`. `mode=wait` lets requests in flight end before; former versions
ignore it. After level 2 the weights are read again from their files before requests are scheduled.)
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any, NamedTuple, Protocol

import aiohttp
import msgspec

from adapters.whole_body import whole_body
from adapters.wire import decoding
from config.schema.config import PoolConfig
from gateway.features.scaling.external import ExternalScale
from gateway.traffic.discovery.target import DiscoveredEndpoint
from gateway.traffic.fleet.member import FleetError, session
from gateway.traffic.standing import PoolDemand, PoolStanding
from policies.scaling.scaler import SleepFacts, chosen

MAX_BYTES = 4 * 1024**2
READ_SECONDS = 2.0
ORDER_SECONDS = 300.0
"""The longest time of one order: weights of many GiB are copied, or read."""
RUNNING = (b"vllm:num_requests_running{", b"vllm:num_requests_waiting{")
ENDED = b"vllm:request_success_total{"
RELOAD = {"method": "reload_weights"}
log = logging.getLogger(__name__)
LOST_READS = 3
"""Failed reads after which a server is unreachable."""
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 15.0
"""Seconds before an order that failed is repeated; they double."""


class SleepError(Exception):
    """A call that failed. The message is for operators and has no address."""


class _Asleep(msgspec.Struct):
    is_sleeping: bool


class SleepLoad(NamedTuple):
    """The requests of all clients at a server."""

    running: float
    """Requests that run or wait there."""
    ended: float
    """Requests that have ended since the start of the server."""


class SleepOrders(Protocol):
    """Calls to the servers of a pool. Each raises `SleepError`."""

    async def asleep(self, address: str) -> bool:
        """Whether the server sleeps."""

    async def load(self, address: str) -> SleepLoad:
        """The load of the server."""

    async def sleep(self, address: str, level: int) -> None:
        """Put the server to sleep, after its requests in flight."""

    async def wake(self, address: str, level: int) -> None:
        """Wake the server. Returns when it computes."""


class HttpSleepOrders:
    """The calls over HTTP, with the credentials and the TLS of the pool's requests."""

    def __init__(self, pool: Callable[[], PoolConfig]) -> None:
        self._pool = pool

    async def asleep(self, address: str) -> bool:
        body = await self._get(address, "/is_sleeping")
        try:
            return msgspec.json.decode(body, type=_Asleep).is_sleeping
        except decoding.MALFORMED_JSON:
            raise SleepError("/is_sleeping is not vLLM's") from None

    async def load(self, address: str) -> SleepLoad:
        lines = (await self._get(address, "/metrics")).splitlines()
        running = [line for line in lines if line.startswith(RUNNING)]
        if not running:
            raise SleepError("/metrics are not vLLM's")
        return SleepLoad(_sum(running), _sum(line for line in lines if line.startswith(ENDED)))

    async def sleep(self, address: str, level: int) -> None:
        await self._post(address, f"/sleep?level={level}&mode=wait")

    async def wake(self, address: str, level: int) -> None:
        if level == 2:
            await self._post(address, "/wake_up?tags=weights")
            await self._post(address, "/collective_rpc", RELOAD)
        await self._post(address, "/wake_up")

    async def _get(self, address: str, path: str) -> bytes:
        try:
            async with (
                session(self._pool(), address, READ_SECONDS) as http,
                http.get(_url(address, path), allow_redirects=False) as response,
            ):
                body = await whole_body(response, MAX_BYTES)
        except (aiohttp.ClientError, OSError, TimeoutError, FleetError) as error:
            raise SleepError(f"{path} failed ({type(error).__name__})") from None
        _check(path, response.status)
        if body is None:
            raise SleepError(f"{path} is larger than {MAX_BYTES // 1024**2} MiB")
        return body

    async def _post(self, address: str, path: str, body: object = None) -> None:
        try:
            async with (
                session(self._pool(), address, ORDER_SECONDS) as http,
                http.post(_url(address, path), json=body, allow_redirects=False) as response,
            ):
                await response.read()
        except (aiohttp.ClientError, OSError, TimeoutError, FleetError) as error:
            raise SleepError(f"{path} failed ({type(error).__name__})") from None
        _check(path, response.status)


def _check(path: str, status: int) -> None:
    if status == 404:
        raise SleepError(f"{path} does not exist: start vLLM with VLLM_SERVER_DEV_MODE=1 and --enable-sleep-mode")
    if status != 200:
        raise SleepError(f"{path} answered with status {status}")


def _sum(samples: Iterable[bytes]) -> float:
    try:
        return sum(float(sample.rsplit(b" ", 1)[1]) for sample in samples)
    except ValueError:
        raise SleepError("/metrics are not vLLM's") from None


def _url(address: str, path: str) -> str:
    base = "http://localhost" if address.startswith("unix:") else address.rstrip("/")
    return base.removesuffix("/v1") + path


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
