"""Stores the counts of this process once a second, off the requests. Without the database they wait in memory."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence

from config.schema.config import Config
from gateway.auth.errors import KeysError
from gateway.shadow.live import LiveShadows
from gateway.shadow.store import Key, ShadowStore
from policies.shadowing.pairs import PairTally, ShadowSample
from policies.shadowing.planned import ShadowPlan, planned
from policies.shadowing.verdict import ShadowVerdict, verdict

PERIOD = 1.0
REFRESH = 10.0
"""Seconds after which the sums of other processes are read again."""
log = logging.getLogger(__name__)


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
        self.available = True
        """Whether the last transaction succeeded."""
        self.evidence: Mapping[str, ShadowVerdict] = {}
        """The evidence for each shadow of the file, as last read."""
        self._config = config
        self._shadows = shadows
        self._pepper = pepper
        self._trim = trim
        self._counts: dict[Key, PairTally] = {}
        self._store: ShadowStore | None = None
        self._read_at = 0.0
        self._planned: tuple[Config, tuple[ShadowPlan, ...]] | None = None

    @property
    def planned(self) -> tuple[ShadowPlan, ...]:
        """The shadows of the configuration in force."""
        config = self._config()
        if self._planned is None or self._planned[0] is not config:
            self._planned = config, tuple(planned(config))
        return self._planned[1]

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
        try:
            taken = self._shadows.take_samples()
            verdicts, self.evidence = await asyncio.to_thread(self._written, self.planned, counts, taken)
        except KeysError as error:
            for key, tally in counts.items():
                self._add(key, tally)
            if self.available:
                log.warning("shadows: %s; their counts wait in memory", error)
            self.available = False
            return
        self.available = True
        for (name, _), evidence in verdicts.items():
            _report(name, evidence)

    async def aclose(self) -> None:
        """Store the last counts."""
        await self.tick()
        if self._store is not None:
            self._store.close()

    def _add(self, key: Key, tally: PairTally) -> None:
        if key in self._counts:
            self._counts[key].add(tally)
        else:
            self._counts[key] = tally

    def _written(
        self,
        plans: tuple[ShadowPlan, ...],
        counts: Mapping[Key, PairTally],
        taken: Mapping[Key, Sequence[ShadowSample]],
    ) -> tuple[Mapping[Key, ShadowVerdict], Mapping[str, ShadowVerdict]]:
        """In a thread: the new verdicts, and the evidence of all shadows."""
        if self._store is None:
            self._store = ShadowStore(self._config().state.database, self._pepper())
        new, stored = self._store.add(plans, counts, taken) if counts else {}, self._store.read()
        progress = {plan: stored.get((plan.name, plan.identity)) for plan in plans}
        return new, {plan.name: verdict(plan.config, each.tally) for plan, each in progress.items() if each is not None}


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
