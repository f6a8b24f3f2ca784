"""The bundled runtimes, started once for all workers."""

import asyncio
import logging
from collections.abc import Mapping

from config.schema.config import Config, RuntimeConfig
from gateway.placement.launch import CannotLaunch
from gateway.placement.local import LocalRuntime, LocalRuntimes
from gateway.traffic.member import FleetError

log = logging.getLogger(__name__)
Prepared = dict[str, LocalRuntime]
"""Runtimes by pool."""


class SharedRuntimes:
    """`prepare`, then `commit` or `abandon`. `prepare` does not change running runtimes."""

    def __init__(self) -> None:
        self._local = LocalRuntimes()
        self._running: Prepared = {}
        self._leaving: dict[LocalRuntime, float] = {}
        """Replaced runtimes, and the loop time until which each stays warm."""
        self._returning: frozenset[LocalRuntime] = frozenset()
        """Those of them that a change in progress uses again."""

    def get(self, pool: str) -> LocalRuntime | None:
        """The runtime of a pool."""
        return self._running.get(pool)

    def prepare(self, config: Config) -> Prepared:
        """The runtimes of `config`; starts new ones. Raises `FleetError` before it starts any."""
        fresh = []
        prepared: Prepared = {}
        for pool in config.pools:
            if pool.runtime is None:
                continue
            runtime = self._existing(pool.name, pool.runtime)
            if runtime is None:
                try:
                    runtime = self._local.make(pool.name, pool.runtime, lambda reason: None)  # workers notice by probes
                except CannotLaunch as error:
                    raise FleetError(f"pool {pool.name}: runtime: {error}") from None
                fresh.append(runtime)
            prepared[pool.name] = runtime
        for runtime in fresh:
            runtime.start()
        self._returning = frozenset(prepared.values()) & self._leaving.keys()
        return prepared

    def _existing(self, pool: str, config: RuntimeConfig) -> LocalRuntime | None:
        """The running runtime of a pool, or its replaced runtime that has not been stopped yet."""
        candidates = (self._running.get(pool), *(runtime for runtime in self._leaving if runtime.name == pool))
        return next((runtime for runtime in candidates if runtime is not None and runtime.config == config), None)

    def commit(self, prepared: Prepared, warm: Mapping[str, float] = {}) -> list[LocalRuntime]:
        """Use these from now on. Returns the replaced runtimes, to stop when no worker uses them any more; those of a
        removed pool not before its `warm` seconds."""
        before, self._running, self._returning = self._running, prepared, frozenset()
        for runtime in prepared.values():
            self._leaving.pop(runtime, None)
        replaced = [runtime for pool, runtime in before.items() if prepared.get(pool) is not runtime]
        now = asyncio.get_running_loop().time()
        for runtime in replaced:
            self._leaving[runtime] = now + (0.0 if runtime.name in prepared else warm.get(runtime.name, 0.0))
        return replaced

    def leaves_in(self, runtime: LocalRuntime) -> float | None:
        """Seconds until a replaced runtime may be stopped; None if it is in use again, or stopped."""
        if (until := self._leaving.get(runtime)) is None:
            return None
        return max(until - asyncio.get_running_loop().time(), 1.0 if runtime in self._returning else 0.0)

    async def stop(self, runtime: LocalRuntime) -> None:
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
        running, self._running, self._leaving = {*self._running.values(), *self._leaving}, {}, {}
        await asyncio.gather(*(runtime.stop() for runtime in running))
        self._local.close()


def addresses(prepared: Prepared) -> dict[str, str]:
    """The runtimes' addresses, by pool."""
    return {pool: runtime.address for pool, runtime in prepared.items()}
