"""Measures the demand for each runtime, decides the number of its replicas, and applies it.

One process runs it: the gateway of one process, or the supervisor. A failure leaves the replicas as they are.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Any

from config.schema.config import Config, PoolConfig
from gateway.features.scaling.actuator import Actuator
from gateway.features.scaling.devices import assign
from gateway.features.scaling.external import ExternalScale
from gateway.features.scaling.pattern import UsagePattern
from gateway.features.scaling.pool_scale import PoolScale, occupancy
from gateway.features.scaling.serving import ServeScale
from gateway.features.scaling.sleeping import SleepScale
from gateway.traffic.fleet.member import FleetError
from policies.scaling.starts import UNKNOWN

log = logging.getLogger(__name__)
SAMPLE_SECONDS = 0.25
DECISION_SECONDS = 1.0
OCCUPANCY_SECONDS = 5.0


class Autoscaler:
    """`run` until the end."""

    def __init__(
        self,
        config: Callable[[], Config],
        actuator: Actuator,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
        pattern: UsagePattern | None = None,
    ) -> None:
        self._pools: dict[str, PoolScale] = {}
        self._config = config
        self._actuator = actuator
        self._clock = clock
        self._wall = wall
        self._pattern = pattern
        self._configured: Config | None = None
        self._decided = clock()
        self._defect = ""
        """The last unexpected error, which is logged once."""
        self._refused: dict[str, str] = {}
        """The error of the last change of each pool that failed, as it is logged."""

    @property
    def pools(self) -> dict[str, PoolScale]:
        """The pools of the configuration in force whose number of endpoints is decided here."""
        config = self._config()
        if config is not self._configured:
            self._configured = config
            self._pools = {pool.name: self._pool(pool) for pool in config.pools if pool.scaling is not None}
        return self._pools

    async def run(self) -> None:
        """Measure and decide until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._decide())
            group.create_task(self._read_occupancy())
            group.create_task(self._follow_servers())
            if self._pattern is not None:
                group.create_task(self._pattern.run())

    async def _decide(self) -> None:
        while True:
            await asyncio.sleep(SAMPLE_SECONDS)
            try:
                await self.tick()
            except Exception as error:  # a defect in one decision must not end all later ones: cold models need them
                if repr(error) != self._defect:
                    log.exception("replicas: a decision failed, and the replicas are unchanged")
                self._defect = repr(error)

    async def _read_occupancy(self) -> None:
        while True:
            await asyncio.sleep(OCCUPANCY_SECONDS)
            for pool in list(self.pools.values()):
                pool.occupancy = await occupancy(pool.metrics_of_replicas())

    async def _follow_servers(self) -> None:
        """Wake servers that are needed, and put others to sleep. Change deployments of Ray Serve."""
        try:
            while True:
                await asyncio.sleep(DECISION_SECONDS)
                for pool in self.pools.values():
                    if isinstance(pool, SleepScale | ServeScale):
                        pool.follow(self._clock)
        finally:
            for pool in self.pools.values():
                if isinstance(pool, SleepScale | ServeScale):
                    pool.close()

    async def tick(self) -> None:
        """Measure once. Decide if the time has come."""
        now, pools = self._clock(), self.pools
        demands = await self._actuator.exchange([pool.standing(now) for pool in pools.values()])
        for name, pool in pools.items():
            own = [demand for demand in demands if demand.pool == name]
            if own:  # otherwise no process responded, and the demand is unknown
                pool.sample(own, self._actuator.running(name), now)
        if now - self._decided < DECISION_SECONDS and not any(pool.wakes for pool in pools.values()):
            return
        self._decided = now
        if self._pattern is not None:
            for name, pool in pools.items():
                pool.expected = self._pattern.floor(name, pool.starts.seconds or UNKNOWN)
        decided = {name: pool.decide(now, self._wall()) for name, pool in pools.items()}
        decided |= assign(self._config(), pools, self._actuator.occupies, now)
        for name, pool in pools.items():
            if not isinstance(pool, ExternalScale):
                await self._apply(name, pool, decided[name])

    def _pool(self, config: PoolConfig) -> PoolScale:
        kind = _kind(config)
        existing = self._pools.get(config.name)
        if type(existing) is not kind:
            return kind(config)
        existing.configure(config)
        return existing

    async def _apply(self, name: str, pool: PoolScale, numbers: tuple[int, ...]) -> None:
        running = tuple(sorted(self._actuator.running(name)))
        if numbers == running:
            return
        log.info("pool %s: %d replicas after %d: %s", name, len(numbers), len(running), pool.decision.reason)
        try:
            await self._actuator.scale(name, numbers)
            self._refused.pop(name, None)
        except FleetError as error:
            if self._refused.get(name) != str(error):
                log.error("pool %s: the replicas are unchanged: %s", name, error)
            self._refused[name] = str(error)

    def describe(self) -> list[dict[str, Any]]:
        """The replicas of every runtime."""
        return [pool.describe() for pool in self.pools.values()]

    def annotate(self, pools: list[dict[str, Any]]) -> None:
        """Add the replicas to the descriptions of pools."""
        for pool in pools:
            if (scale := self.pools.get(pool["pool"])) is not None:
                pool["replicas"] = scale.describe()


def _kind(pool: PoolConfig) -> type[PoolScale]:
    if pool.sleeps:
        return SleepScale
    if pool.in_ray_serve:
        return ServeScale
    return ExternalScale if pool.runtime is None else PoolScale
