"""The decider of rollouts and experiments over a database in memory, which may be away."""

from collections.abc import Callable, Sequence
from random import Random
from typing import Any

from config.schema.config import Config, ExperimentConfig
from gateway.auth.audit import Actor
from gateway.features.rollouts.decider import Decider, Exchange
from gateway.features.rollouts.planned import Planned, Progress, Verb
from gateway.features.rollouts.store import CountBatch, RolloutStore, _copied, _resumed
from gateway.features.shadow.live import LiveShadows
from gateway.state.errors import StoreUnavailable
from gateway.state.lease import Leases
from gateway.state.opened import Opened
from policies.rollouts.decide import OrderRefused
from policies.rollouts.tally import MEASURING, ArmTally, StratumTally
from policies.sequential.quantiles import merged
from policies.shadowing.pairs import PairTally, verdict


class MemoryStore(RolloutStore):
    """Counts and decides as the state database does, without SQL and its price."""

    def __init__(self, rng: Random, shadows: LiveShadows) -> None:
        self.stored: dict[str, Progress] = {}
        self.is_away = False
        """Every transaction fails: before anything is done, or after the commit."""
        self.stops: dict[str, set[str]] = {}
        """By rollout: the statuses and steps that came up."""
        self._rng = rng
        self._shadows = shadows
        self._pairs: dict[tuple[str, str], PairTally] = {}
        self._subjects: dict[tuple[str, int], dict[str, set[int]]] = {}
        self._number = 0

    def tick(self, planned: Sequence[Planned], batch: CountBatch, lease: Leases, seconds: float) -> dict[str, Progress]:
        self._begin()
        counts = batch.counts if batch.number > self._number else ()
        self._number = max(self._number, batch.number)
        for key, tally in self._shadows.take().items():
            self._pairs.setdefault(key, PairTally()).add(tally)
        after: dict[str, Progress] = {}
        for plan in planned:
            progress = _resumed(plan, self.stored.get(plan.config.name), decides=True)
            assert progress is not None
            own = [c for c in counts if (c.comparison, c.generation) == (progress.name, progress.generation)]
            progress = self._counted(_copied(progress), own)
            after[progress.name] = plan.advanced(progress, seconds, self._rng, self._judgement(plan))
        self.stored |= after
        self._end()
        return after

    def order(self, plan: Planned, verb: Verb, by: Actor) -> Progress:
        self._begin()
        before = self.stored.get(plan.config.name)
        if before is None or before.fingerprint != plan.fingerprint:
            raise OrderRefused("not begun")
        after = self.stored[before.name] = plan.ordered(before, verb)
        self._end()
        return after

    def read(self) -> dict[str, Progress]:
        self._begin()
        return dict(self.stored)

    def release(self, lease: Leases) -> None:
        """Nothing else decides."""

    def close(self) -> None:
        """There is no connection."""

    def _begin(self) -> None:
        if self.is_away and self._rng.random() < 0.5:
            raise StoreUnavailable("the database is away")

    def _end(self) -> None:
        """A commit whose reply is lost."""
        if self.is_away:
            raise StoreUnavailable("the database has gone")

    def _judgement(self, plan: Planned) -> Any:
        config = plan.config
        if isinstance(config, ExperimentConfig) or config.shadow_first is None:
            return "undecided"
        return verdict(config.shadow_first, self._pairs.get((config.name, plan.shadow), PairTally())).judgement

    def _counted(self, progress: Progress, counts: Sequence[StratumTally]) -> Progress:
        seen = self._subjects.setdefault((progress.name, progress.generation), {})
        for each in counts:
            if each.stratum == MEASURING:
                progress.measured = dict(merged((progress.measured, *each.tally.first_byte[:1])))
            elif each.stratum < len(progress.strata):
                stratum, tally = progress.strata[each.stratum], each.tally
                total = ArmTally(stratum.assigned, stratum.ended, stratum.events, {}, stratum.first_byte)
                total.add(ArmTally(tally.assigned, tally.ended, tally.events, {}, tally.first_byte))
                for key, arms in tally.subjects.items():
                    counted = (
                        stratum.assigned if key == "" else stratum.events.setdefault(key, [0] * len(stratum.assigned))
                    )
                    for subject in arms.keys() - seen.setdefault(key, set()):
                        counted[arms[subject]] += 1
                    seen[key] |= arms.keys()
        return progress


class MemoryDecider(Decider):
    """Decides over a store in memory."""

    def __init__(
        self, config: Callable[[], Config], exchange: Exchange, store: MemoryStore, clock: Callable[[], float]
    ) -> None:
        super().__init__(config, exchange, lambda: b"", clock)
        self._store = Opened(lambda: store)
