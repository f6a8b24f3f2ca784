"""The bundled runtimes, started once for all workers."""

import asyncio
import logging
from collections.abc import Mapping

from config.schema.config import Config, RuntimeConfig
from gateway.features.placement.local import LocalRuntimes, ReplicaNumbers
from gateway.traffic.fleet.member import FleetError
from gateway.traffic.fleet.runtime import CannotLaunch, OwnRuntime, place_of

log = logging.getLogger(__name__)
PLACED_SECONDS = 0.1
Prepared = dict[tuple[str, int], OwnRuntime]
"""Replicas of runtimes, by pool and number."""


class SharedRuntimes:
    """`prepare`, then `commit` or `abandon`. `prepare` does not change running runtimes."""

    def __init__(self) -> None:
        self._local = LocalRuntimes()
        self._running: Prepared = {}
        self._leaving: dict[OwnRuntime, float] = {}
        """Replaced runtimes, and the loop time until which each stays warm."""
        self._returning: frozenset[OwnRuntime] = frozenset()
        """Those of them that a change in progress uses again."""

    @property
    def numbers(self) -> ReplicaNumbers:
        """The replicas that should run."""
        return self._local.numbers

    def occupies(self, pool: str) -> bool:
        """Whether a process of a pool's runtime runs, or has not ended yet."""
        return self._local.occupies(pool)

    @property
    def in_force(self) -> Prepared:
        """The replicas in use."""
        return self._running

    def get(self, pool: str, number: int) -> OwnRuntime | None:
        """A replica of a pool's runtime."""
        return self._running.get((pool, number))

    def prepare(self, config: Config) -> Prepared:
        """The runtimes of `config`; starts new ones. Raises `FleetError` before it starts any."""
        fresh: list[OwnRuntime] = []
        prepared: Prepared = {}
        for pool in config.pools:
            if pool.runtime is None:
                continue
            for number in self._local.replicas(pool.name, pool.runtime):
                runtime = self._existing(pool.name, number, pool.runtime)
                if runtime is None:
                    runtime = self._make(pool.name, number, pool.runtime)
                    fresh.append(runtime)
                prepared[pool.name, number] = runtime
        for runtime in fresh:
            runtime.start()
        self._returning = frozenset(prepared.values()) & self._leaving.keys()
        return prepared

    async def placed(self, prepared: Prepared) -> None:
        """Wait until each new server has an address: a node of a Ray cluster is selected. A pool that has replicas of
        the same server needs no waiting. Raises `FleetError` after `start_timeout`."""
        running = {pool: runtime.config.server for (pool, _), runtime in self._running.items()}
        for (pool, _), runtime in prepared.items():
            if runtime.address or running.get(pool) == runtime.config.server:
                continue
            seconds = runtime.config.start_timeout
            try:
                async with asyncio.timeout(seconds):
                    while not runtime.address:  # noqa: ASYNC110 - rare, and Ray takes a second at least
                        await asyncio.sleep(PLACED_SECONDS)
            except TimeoutError:
                message = f"pool {pool}: its runtime was not placed within {seconds:g} s"
                raise FleetError(f"{message}: {runtime.failing}" if runtime.failing else message) from None

    def _make(self, pool: str, number: int, config: RuntimeConfig) -> OwnRuntime:
        try:
            return self._local.make(pool, config, lambda reason: None, number)  # workers notice by probes
        except CannotLaunch as error:
            raise FleetError(f"pool {pool}: runtime: {error}") from None

    def _existing(self, pool: str, number: int, config: RuntimeConfig) -> OwnRuntime | None:
        """The running replica of a pool, or its replaced one that has not been stopped yet."""
        leaving = (runtime for runtime in self._leaving if (runtime.name, runtime.number) == (pool, number))
        required = config.server, place_of(config, number)
        for runtime in (self._running.get((pool, number)), *leaving):
            if runtime is not None and (runtime.config.server, runtime.place) == required:
                return runtime
        return None

    def commit(self, prepared: Prepared, warm: Mapping[str, float] = {}) -> list[OwnRuntime]:
        """Use these from now on. Returns the replaced runtimes, to stop when no worker uses them any more; those of a
        removed pool not before its `warm` seconds."""
        before, self._running, self._returning = self._running, prepared, frozenset()
        for runtime in prepared.values():
            self._leaving.pop(runtime, None)
        replaced = [runtime for key, runtime in before.items() if prepared.get(key) is not runtime]
        pools, now = {pool for pool, _ in prepared}, asyncio.get_running_loop().time()
        for runtime in replaced:
            self._leaving[runtime] = now + (0.0 if runtime.name in pools else warm.get(runtime.name, 0.0))
        return replaced

    def leaves_in(self, runtime: OwnRuntime) -> float | None:
        """Seconds until a replaced runtime may be stopped; None if it is in use again, or stopped."""
        if (until := self._leaving.get(runtime)) is None:
            return None
        return max(until - asyncio.get_running_loop().time(), 1.0 if runtime in self._returning else 0.0)

    async def stop(self, runtime: OwnRuntime) -> None:
        """Stop a replaced runtime."""
        del self._leaving[runtime]
        await runtime.stop()

    async def abandon(self, prepared: Prepared) -> None:
        """Stop the runtimes that `prepare` started."""
        self._returning = frozenset()
        there = {*self._running.values(), *self._leaving}
        await asyncio.gather(*(runtime.stop() for runtime in prepared.values() if runtime not in there))

    async def aclose(self) -> None:
        """Stop all runtimes."""
        await self._local.leave()
        running, self._running, self._leaving = {*self._running.values(), *self._leaving}, {}, {}
        await asyncio.gather(*(runtime.stop() for runtime in running))
        self._local.close()


def addresses(prepared: Prepared) -> dict[str, dict[int, str]]:
    """The runtimes' addresses, by pool and replica. A replica that no node of its cluster runs yet has none."""
    by_pool: dict[str, dict[int, str]] = {}
    for (pool, number), runtime in prepared.items():
        if runtime.address:
            by_pool.setdefault(pool, {})[number] = runtime.address
    return by_pool
