"""Collects the counts of all workers, lets one gateway decide, and applies the shares. It runs once a second, in the
background. Without the database it decides nothing: the shares stay, and counts wait in memory.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any

from config.schema.config import Config
from config.schema.rollout import RolloutConfig
from gateway.auth.audit import Actor
from gateway.features.rollouts.planned import Planned, Progress, Verb, planned_of
from gateway.features.rollouts.schema import decider_lease
from gateway.features.rollouts.store import CountBatch, RolloutStore
from gateway.state.errors import StateError
from gateway.state.faults import is_outage
from gateway.state.insist import Outages
from gateway.state.opened import Opened
from gateway.state.refusals import refuse
from gateway.state.rounds import Rounds
from gateway.traffic.fleet.operations import NotDone
from policies.rollouts.decide import OrderRefused
from policies.rollouts.progress import RolloutProgress
from policies.rollouts.tally import ShareOrder, StratumTally
from policies.warm import warm_seconds, warm_targets

log = logging.getLogger(__name__)
PERIOD = 1.0
_DECIDING = "deciding"
LONGEST = 10.0
"""The most seconds that count between two decisions: a machine that was suspended has observed no request."""

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
        self.progress: Mapping[str, Progress] = {}
        """The rollouts and experiments of the file, as last stored."""
        self._config = config
        self._exchange = exchange
        self._pepper = pepper
        self._clock = clock
        self._lease = decider_lease(clock)
        self._store = Opened(lambda: RolloutStore(self._config().state.database, self._pepper()))
        self._counts: dict[tuple[str, int, int], StratumTally] = {}
        self._batch = CountBatch(0, ())
        self._sent = True
        """Whether the batch is certainly stored."""
        self._decided_at = clock()
        outages = Outages("rollouts", StateError, meanwhile="the shares stay")
        self.tick = Rounds(outages, _DECIDING, self._tick, lambda: PERIOD)
        """Collects, decides, applies."""
        self._planned: tuple[Config, tuple[Planned, ...]] | None = None

    @property
    def available(self) -> bool:
        """Whether the last transaction succeeded."""
        return self.tick.outages.available

    @property
    def planned(self) -> tuple[Planned, ...]:
        """The rollouts and experiments of the configuration in force."""
        config = self._config()
        if self._planned is None or self._planned[0] is not config:
            self._planned = config, planned_of(config)
        return self._planned[1]

    @property
    def orders(self) -> list[ShareOrder]:
        """The shares in force."""
        return [progress.order() for progress in self.progress.values()]

    def warm(self) -> dict[str, float]:
        """Seconds for which the old arm of each rollout must still be able to serve, if any."""
        seconds: dict[str, float] = {}
        for plan in self.planned:
            config, progress = plan.config, self.progress.get(plan.config.name)
            if isinstance(config, RolloutConfig) and isinstance(progress, RolloutProgress):
                seconds[config.name] = warm_seconds(config, progress)
        return {name: left for name, left in seconds.items() if left > 0}

    def check_unload(self, model: str) -> None:
        """Raises `NotDone` if the old arm of a rollout needs the model on its servers."""
        for name, target in warm_targets(self._config(), warm := self.warm()):
            if target.model == model:
                raise NotDone(
                    409,
                    "needed_for_rollback",
                    f"the rollout {name} can go back to this model for another {warm[name]:.0f} s (`keep`): "
                    "add ?force=true to unload it now",
                )

    async def open(self) -> None:
        """Read the stored shares, so that the first request has its arm. Without a database `from` has all requests."""
        try:
            stored = await self._stored() if self.planned else {}
        except StateError as error:
            self.tick.outages.failed(_DECIDING, error)
            return
        fingerprints = {plan.config.name: plan.fingerprint for plan in self.planned}
        self.progress = {
            name: progress for name, progress in stored.items() if fingerprints.get(name) == progress.fingerprint
        }

    async def run(self) -> None:
        """Decide once a period until cancelled."""
        await self.tick.run()

    async def _tick(self) -> None:
        if not self.planned:
            self.progress = {}
            return
        await self._collect()
        before = self.orders
        await self._decide()
        if self.orders != before:
            await self._collect()

    async def order(self, name: str, verb: Verb, by: Actor, kind: str = "rollout") -> Progress:
        """Follow an operator's order, and apply it at once. Raises `OrderRefused` and `StateError`."""
        plan = next((plan for plan in self.planned if (plan.config.name, plan.config.kind) == (name, kind)), None)
        if plan is None:
            raise OrderRefused(f'the file has no {kind} "{name[:128]}"')
        progress = await asyncio.to_thread(lambda: self._store().order(plan, verb, by))
        await self.tick()
        return self.progress.get(name, progress)

    async def series(self, name: str) -> list[dict[str, Any]]:
        """The time series of a rollout or an experiment. Raises `StateError`."""
        progress = self.progress.get(name)
        if progress is None:
            return []
        return await asyncio.to_thread(lambda: self._store().series(name, progress.generation))

    async def aclose(self) -> None:
        """Store the last counts, and let another gateway decide."""
        if not self._store:
            return
        try:
            await self.tick()
            await asyncio.to_thread(lambda: self._store().release(self._lease))
        except StateError as error:
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
        """Store the counts, and decide. Counts whose transaction failed come again in the same batch, so that they
        count once even if it was committed. A batch that is refused was not committed: it comes again in halves."""
        while True:
            again = not self._sent
            if self._sent:
                self._batch = CountBatch(self._batch.number + 1, tuple(self._counts.values()))
                self._counts, self._sent = {}, False
            try:
                await self._store_batch(self._batch)
            except Exception as error:
                if is_outage(error) or not self._batch.counts:
                    raise
                await self._store_batch(CountBatch(self._batch.number - 1, ()))  # fails if no count is the reason
                self._halve(error)
                continue
            self._sent = True
            if not again:
                return

    async def _store_batch(self, batch: CountBatch) -> None:
        now, planned = self._clock(), self.planned
        seconds = min(max(now - self._decided_at, 0.0), LONGEST)
        self.progress = await asyncio.to_thread(lambda: self._store().tick(planned, batch, self._lease, seconds))
        self._decided_at = now

    def _halve(self, error: Exception) -> None:
        """Replace a refused batch by one of half of its counts; a single count ends."""
        counts = self._batch.counts
        if len(counts) == 1:
            refuse("rollouts", f"counts of {counts[0].comparison}", error)
        half = len(counts) // 2
        self._batch = self._batch._replace(counts=counts[:half])
        self._add(counts[half:] if half else ())

    async def _stored(self) -> dict[str, Progress]:
        return await asyncio.to_thread(lambda: self._store().read())
