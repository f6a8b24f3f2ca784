"""All endpoints there are: kept across reloads, added, retired."""

import asyncio
import itertools
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass, field
from random import Random

from config.schema import BalanceConfig, Config, PoolConfig
from gateway.placement.local import LocalRuntimes
from gateway.placement.runtime import Runtimes
from gateway.traffic.endpoint import Endpoint
from gateway.traffic.member import FleetError, Member, make, sources
from gateway.traffic.pool import Pool
from gateway.traffic.queue import PoolQueue
from policies.balance import Picker
from policies.pickers import picker

POLL_SECONDS = 0.05


@dataclass(slots=True)
class Change:
    """The members of a configuration's pools, and which of them were made for it."""

    config: Config
    members: dict[str, list[Member]] = field(default_factory=dict)
    new: list[Member] = field(default_factory=list)


class Fleet:
    """Builds a configuration's pools out of what runs already and what is new.

    `prepare`, perhaps `ready`, then either `commit` or `abandon`: until `commit` nothing that runs is touched.
    """

    def __init__(self, rng: Random, clock: Callable[[], float], runtimes: Runtimes | None = None) -> None:
        self._rng = rng
        self._clock = clock
        self._members: list[Member] = []
        self._pickers: dict[str, tuple[BalanceConfig, Picker]] = {}
        self._queues: dict[str, PoolQueue] = {}
        self._leaving: set[asyncio.Task[None]] = set()
        self._runtimes = runtimes or LocalRuntimes()

    def __iter__(self) -> Iterator[Member]:
        return iter(self._members)

    def endpoints(self) -> Iterator[tuple[str, Endpoint]]:
        """`(pool, endpoint)` for each in use."""
        return ((member.pool, member.endpoint) for member in self._members)

    def queues(self) -> Iterator[PoolQueue]:
        """Those of the pools that have one, and of pools that are gone while somebody waits there."""
        return iter(self._queues.values())

    def prepare(self, config: Config) -> Change:
        """Make what `config` needs and is not there. Raises `FleetError`, having left nothing behind."""
        change = Change(config)
        try:
            for pool in config.pools:
                change.members[pool.name] = [self._member(change, pool, i, s) for i, s in enumerate(sources(pool))]
        except BaseException:
            self.abandon(change)
            raise
        return change

    def _member(self, change: Change, pool: PoolConfig, index: int, source: object) -> Member:
        for member in self._members:
            if member.pool == pool.name and member.source == source:
                return member
        member = make(pool, index, source, self._runtimes, self._free_id(change, pool.name))
        change.new.append(member)
        member.watch(self._rng)
        return member

    def _free_id(self, change: Change, pool: str) -> str:
        """The lowest number that no endpoint has: after a reload a position in the file may be taken."""
        taken = {member.endpoint.id for member in (*self._members, *change.new)}
        return next(id_ for number in itertools.count() if (id_ := f"{pool}/{number}") not in taken)

    async def ready(self, change: Change) -> None:
        """Wait until each new runtime answers. Raises `FleetError` for one that does not in its time."""
        for member in change.new:
            if member.runtime is None:
                continue
            seconds = member.runtime.config.start_timeout
            try:
                async with asyncio.timeout(seconds):
                    while member.endpoint.health != "healthy":  # noqa: ASYNC110 - the probe's pace decides anyway
                        await asyncio.sleep(POLL_SECONDS)
            except TimeoutError:
                raise FleetError(f"pool {member.pool}: its runtime was not ready within {seconds:g} s") from None

    def commit(self, change: Change) -> dict[str, Pool]:
        """Put it to use. Members that are in no pool any more end when their last request has."""
        kept = [member for members in change.members.values() for member in members]
        for member in self._members:
            if member not in kept:
                self._spawn(self._retire(member))
        self._members = kept
        self._pickers = {pool.name: (pool.balance, self._picker(pool)) for pool in change.config.pools}
        self._commit_queues(change.config)
        return {pool.name: self._pool(pool, change.members[pool.name]) for pool in change.config.pools}

    def _commit_queues(self, config: Config) -> None:
        """Who waits for a pool that is gone is served by it still, as its requests in flight are."""
        written = {pool.name: pool.queue for pool in config.pools}
        for name, queue in list(self._queues.items()):
            if name in written and written[name] is None:
                queue.close()
            if not queue.line.size and written.get(name) is None:
                self._queues.pop(name).stop()
        for name, section in written.items():
            if section is None:
                continue
            if (known := self._queues.get(name)) is not None:
                known.configure(section, config.tenants)
            else:
                self._queues[name] = PoolQueue(name, section, config.tenants, self._clock)

    def abandon(self, change: Change) -> None:
        """It will not be used: end what was made for it."""
        for member in change.new:
            self._spawn(member.stop())

    def _picker(self, pool: PoolConfig) -> Picker:
        """The one in use, unless it is to balance in another way: what it learned outlives reloads too."""
        balance, known = self._pickers.get(pool.name, (None, None))
        return known if known is not None and balance == pool.balance else picker(pool.balance)

    def _pool(self, config: PoolConfig, members: list[Member]) -> Pool:
        for member, written in zip(members, config.endpoints, strict=False):  # a runtime has no endpoint written
            member.endpoint.configure(written.weight, config.balance.slow_start)
        for member in members:
            member.endpoint.breaker.failures = config.breaker.failures
            member.endpoint.breaker.open_for = config.breaker.open_for
        return Pool(
            config.name,
            [member.endpoint for member in members],
            self._pickers[config.name][1],
            max_in_flight=config.max_in_flight,
            panic=config.balance.panic,
            queue=self._queues.get(config.name),
            rng=self._rng,
            clock=self._clock,
        )

    async def _retire(self, member: Member) -> None:
        while member.endpoint.in_flight:  # noqa: ASYNC110 - rare, and a slow look costs a request nothing
            await asyncio.sleep(POLL_SECONDS)
        await member.stop()

    def _spawn(self, work: Coroutine[object, object, None]) -> None:
        task = asyncio.create_task(work)
        self._leaving.add(task)
        task.add_done_callback(self._leaving.discard)

    async def aclose(self) -> None:
        """Stop everything now."""
        for queue in self._queues.values():
            queue.stop()
        members, self._members = self._members, []
        await asyncio.gather(*(member.stop() for member in members))
        for task in self._leaving:
            task.cancel()
        self._runtimes.close()
