"""Stores the counts of this process once a second, off the requests. Without the database they wait in memory."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import NamedTuple

from config.schema.config import Config
from gateway.features.shadow.live import LiveShadows
from gateway.features.shadow.store import Key, ShadowStore
from gateway.state.insist import Outages
from gateway.state.opened import Opened
from gateway.state.refusals import refuse, write_each
from policies.shadowing.pairs import PairTally, ShadowSample, ShadowVerdict, verdict
from policies.shadowing.planned import ShadowPlan, planned

PERIOD = 1.0
REFRESH = 10.0
"""Seconds after which the sums of other processes are read again."""
log = logging.getLogger(__name__)


class CountedShadow(NamedTuple):
    """What the database receives of one shadow."""

    key: Key
    tally: PairTally
    sample: ShadowSample | None


class ShadowWriter:
    """`run` until the end, then `aclose`. The database is opened when there is something to store."""

    def __init__(
        self,
        config: Callable[[], Config],
        shadows: LiveShadows,
        pepper: Callable[[], bytes],
        trim: Callable[[], Awaitable[None]],
    ) -> None:
        """`trim` closes what a reload has left; it runs once a period."""
        self.evidence: Mapping[str, ShadowVerdict] = {}
        """The evidence for each shadow of the file, as last read."""
        self._config = config
        self._shadows = shadows
        self._pepper = pepper
        self._trim = trim
        self._counts: dict[Key, PairTally] = {}
        self._store = Opened(lambda: ShadowStore(self._config().state.database, self._pepper()))
        self._outages = Outages("shadows", meanwhile="their counts stay in memory")
        self._read_at = 0.0
        self._planned: tuple[Config, tuple[ShadowPlan, ...]] | None = None

    @property
    def planned(self) -> tuple[ShadowPlan, ...]:
        """The shadows of the configuration in force."""
        config = self._config()
        if self._planned is None or self._planned[0] is not config:
            self._planned = config, tuple(planned(config))
        return self._planned[1]

    @property
    def available(self) -> bool:
        """Whether the last transaction succeeded."""
        return self._outages.available

    async def run(self) -> None:
        """Store once a period until cancelled."""
        while True:
            await asyncio.sleep(PERIOD)
            await self._trim()
            await self.tick()

    async def tick(self) -> None:
        """Store what was counted since the last time."""
        for key, tally in self._shadows.take().items():
            self._add(key, tally)
        now = asyncio.get_running_loop().time()
        if not self._counts and (not self.planned or now - self._read_at < REFRESH):
            return
        # A cancelled transaction may yet be committed: its counts are lost then, and not counted twice.
        counts, self._counts, self._read_at = self._counts, {}, now
        taken = self._shadows.take_samples()
        # Samples come apart from counts: a sample that the database refuses costs no counts.
        items = [CountedShadow(key, tally, None) for key, tally in counts.items()]
        items += [CountedShadow(key, PairTally(), sample) for key, samples in taken.items() for sample in samples]
        verdicts: dict[Key, ShadowVerdict] = {}
        outcome = await asyncio.to_thread(write_each, items, lambda some: verdicts.update(self._added(some)))
        for at, error in outcome.refused.items():
            refuse("shadows", f"counts of {items[at].key[0]}", error)
        for key, tally, sample in items[outcome.ended :]:
            if sample is None:
                self._add(key, tally)
        for (name, _), evidence in verdicts.items():
            _report(name, evidence)
        with self._outages.noting("storing"):
            if outcome.outage is not None:
                raise outcome.outage
            self.evidence = await asyncio.to_thread(self._read)

    async def aclose(self) -> None:
        """Store the last counts."""
        await self.tick()
        self._store.close()

    def _add(self, key: Key, tally: PairTally) -> None:
        if key in self._counts:
            self._counts[key].add(tally)
        else:
            self._counts[key] = tally

    def _added(self, items: Sequence[CountedShadow]) -> Mapping[Key, ShadowVerdict]:
        """In a thread: add counts and samples. Returns the new verdicts."""
        counts: dict[Key, PairTally] = {}
        taken: dict[Key, list[ShadowSample]] = {}
        for key, tally, sample in items:
            counts.setdefault(key, PairTally()).add(tally)
            if sample is not None:
                taken.setdefault(key, []).append(sample)
        return self._store().add(self.planned, counts, taken)

    def _read(self) -> Mapping[str, ShadowVerdict]:
        """In a thread: the evidence of all shadows."""
        stored, plans = self._store().read(), self.planned
        progress = {plan: stored.get((plan.name, plan.identity)) for plan in plans}
        return {plan.name: verdict(plan.config, each.tally) for plan, each in progress.items() if each is not None}


def _report(name: str, evidence: ShadowVerdict) -> None:
    """Log a new verdict."""
    low, high = evidence.excess
    log.log(
        logging.WARNING if evidence.judgement == "differs" else logging.INFO,
        "shadow %s: %s after %d copies: %d differ, %d second answers of the primary differ; %.2f%% to %.2f%% beyond it",
        name,
        evidence.judgement,
        evidence.pairs,
        evidence.shadow_only,
        evidence.repeat_only,
        100 * low,
        100 * high,
    )
