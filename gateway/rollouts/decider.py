"""Collects the counts of all workers, lets one gateway decide, and applies the shares. Once a second, off the requests.

Without the database nothing is decided: the shares stay, and counts wait in memory.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

from config.schema.config import Config
from gateway.auth.audit import Actor
from gateway.auth.errors import KeysError
from gateway.rollouts.lease import DeciderLease
from gateway.rollouts.store import Planned, RolloutStore
from policies.rollouts.decide import OperatorVerb, OrderRefused
from policies.rollouts.fingerprint import fingerprint
from policies.rollouts.progress import RolloutProgress
from policies.rollouts.tally import ShareOrder, StratumTally
from policies.routing.rules import rollouts_of

log = logging.getLogger(__name__)
PERIOD = 1.0
LONGEST = 10.0
"""The most seconds that count as passed between two decisions: a machine that slept has observed nothing."""

Exchange = Callable[[Sequence[ShareOrder]], Awaitable[list[StratumTally]]]
"""Applies orders in every worker, and returns the counts since the last exchange."""


class Decider:
    """`open` before the first request, `run` until the end, then `aclose`."""

    def __init__(
        self,
        config: Callable[[], Config],
        exchange: Exchange,
        pepper: Callable[[], bytes],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.progress: Mapping[str, RolloutProgress] = {}
        """The rollouts of the file, as last stored."""
        self.available = True
        """Whether the last transaction succeeded."""
        self._config = config
        self._exchange = exchange
        self._pepper = pepper
        self._clock = clock
        self._lease = DeciderLease(clock)
        self._store: RolloutStore | None = None
        self._counts: dict[tuple[str, int, int], StratumTally] = {}
        self._decided_at = clock()
        self._one_at_a_time = asyncio.Lock()
        self._planned: tuple[Config, tuple[Planned, ...]] | None = None

    @property
    def planned(self) -> tuple[Planned, ...]:
        """The rollouts of the configuration in force."""
        config = self._config()
        if self._planned is None or self._planned[0] is not config:
            pools = {pool.name: pool for pool in config.pools}
            own = (rollout for _, rollout in rollouts_of(config.models))
            self._planned = config, tuple(Planned(rollout, fingerprint(rollout, pools)) for rollout in own)
        return self._planned[1]

    @property
    def orders(self) -> list[ShareOrder]:
        """The shares in force."""
        return [progress.order() for progress in self.progress.values()]

    async def open(self) -> None:
        """Read the stored shares, so that the first request has its arm. Without a database `from` has all requests."""
        try:
            stored = await self._stored() if self.planned else {}
        except KeysError as error:
            self._report_unavailable(error)
            return
        fingerprints = {plan.config.name: plan.fingerprint for plan in self.planned}
        self.progress = {
            name: progress for name, progress in stored.items() if fingerprints.get(name) == progress.fingerprint
        }

    async def run(self) -> None:
        """Decide once a period until cancelled."""
        while True:
            await asyncio.sleep(PERIOD)
            await self.tick()

    async def tick(self) -> None:
        """Collect, decide, apply."""
        async with self._one_at_a_time:
            if not self.planned:
                self.progress = {}
                return
            await self._collect()
            before = self.orders
            try:
                await self._decide()
            except KeysError as error:
                self._report_unavailable(error)
                return
            if not self.available:
                log.warning("rollouts: the database answers again")
            self.available = True
            if self.orders != before:
                await self._collect()

    async def order(self, name: str, verb: OperatorVerb, by: Actor) -> RolloutProgress:
        """Follow an operator's order, and apply it at once. Raises `OrderRefused` and `KeysError`."""
        plan = next((plan for plan in self.planned if plan.config.name == name), None)
        if plan is None:
            raise OrderRefused(f'the file has no rollout "{name[:128]}"')
        store = await self._opened()
        progress = await asyncio.to_thread(store.order, plan, verb, by)
        await self.tick()
        return self.progress.get(name, progress)

    async def aclose(self) -> None:
        """Store the last counts, and let another gateway decide."""
        if self._store is None:
            return
        try:
            await self.tick()
            await asyncio.to_thread(self._store.release, self._lease)
        except KeysError as error:
            log.warning("rollouts: %s", error)
        finally:
            self._store.close()

    async def _collect(self) -> None:
        self._add(await self._exchange(self.orders))

    def _add(self, counts: Iterable[StratumTally]) -> None:
        for each in counts:
            key = (each.comparison, each.generation, each.stratum)
            waiting = self._counts.get(key)
            if waiting is None:
                self._counts[key] = each
            else:
                waiting.tally.add(each.tally)

    async def _decide(self) -> None:
        store, planned, now = await self._opened(), self.planned, self._clock()
        seconds = min(max(now - self._decided_at, 0.0), LONGEST)
        # A cancelled transaction may yet be committed: its counts are lost then, and not counted twice.
        counts, self._counts = list(self._counts.values()), {}
        try:
            self.progress = await asyncio.to_thread(store.tick, planned, counts, self._lease, seconds)
        except KeysError:
            self._add(counts)
            raise
        self._decided_at = now

    async def _stored(self) -> dict[str, RolloutProgress]:
        return await asyncio.to_thread((await self._opened()).read)

    async def _opened(self) -> RolloutStore:
        if self._store is None:
            url = self._config().state.database
            self._store = await asyncio.to_thread(RolloutStore, url, self._pepper())
        return self._store

    def _report_unavailable(self, error: KeysError) -> None:
        if self.available:
            log.warning("rollouts: %s; the shares stay until it answers", error)
        self.available = False
