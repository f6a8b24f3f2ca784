"""The hours in which models of pools were used, by the recorded usage: replicas start before the next such hour."""

import asyncio
import time
from collections.abc import Callable, Mapping

from config.schema.config import Config
from gateway.features.usage.report import UsageQuery
from gateway.features.usage.writer import UsageWriter
from gateway.state.errors import StateError
from gateway.state.insist import Outages
from gateway.state.rounds import Rounds
from policies.scaling.starts import DAY, HOUR, WEEK, expects

PERIOD = 300.0
LEAD = 60.0
"""Seconds before the hour at which a replica has started."""


class UsagePattern:
    """`run` until the end. Without the database nothing is expected."""

    def __init__(
        self, config: Callable[[], Config], usage: Callable[[], UsageWriter], wall: Callable[[], float] = time.time
    ) -> None:
        self._config = config
        self._usage = usage
        self._wall = wall
        self._hours: Mapping[str, frozenset[int]] = {}
        """The hours with requests, by pool."""
        outages = Outages("prewarm", StateError, meanwhile="nothing starts early")
        self.read = Rounds(outages, "reading the usage", self._read, lambda: PERIOD, at_once=True)
        """Reads the hours of yesterday and of a week before that matter until the next reading."""

    async def run(self) -> None:
        """Read the usage once a period until cancelled."""
        await self.read.run()

    async def _read(self) -> None:
        pools = {pool.name for pool in self._config().pools if pool.scaling is not None and pool.scaling.prewarm}
        if not pools:
            self._hours = {}
            return
        now = int(self._wall()) // HOUR
        try:
            store = await self._usage().store()
            queries = [UsageQuery(now - before, now - before + 3, ("model",), "hour") for before in (DAY, WEEK)]
            rows = [row for query in queries for row in await asyncio.to_thread(store.report, query)]
        except StateError:
            self._hours = {}
            raise
        models = {model.name: model for model in self._config().models}
        used: dict[str, set[int]] = {name: set() for name in pools}
        for row in (row for row in rows if row["requests"] and row["model"] in models):
            for pool in {pool for route in models[row["model"]].routes for pool in route.pools()} & pools:
                used[pool].add(row["hour"])
        self._hours = {name: frozenset(hours) for name, hours in used.items()}

    def floor(self, pool: str, start_seconds: float) -> int:
        """1 if the pool needs a replica by the pattern, which takes so long to start."""
        return int(expects(self._hours.get(pool, ()), self._wall(), start_seconds + LEAD))
