"""The bundled runtimes, started once for all workers."""

import asyncio
import logging

from config.schema.config import Config
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
            runtime = self._running.get(pool.name)
            if runtime is None or runtime.config != pool.runtime:
                try:
                    runtime = self._local.make(pool.name, pool.runtime, lambda reason: None)  # workers notice by probes
                except CannotLaunch as error:
                    raise FleetError(f"pool {pool.name}: runtime: {error}") from None
                fresh.append(runtime)
            prepared[pool.name] = runtime
        for runtime in fresh:
            runtime.start()
        return prepared

    def commit(self, prepared: Prepared) -> list[LocalRuntime]:
        """Use these from now on. Returns the replaced runtimes, to stop when no worker uses them any more."""
        before, self._running = self._running, prepared
        return [runtime for pool, runtime in before.items() if prepared.get(pool) is not runtime]

    async def abandon(self, prepared: Prepared) -> None:
        """Stop the runtimes that `prepare` started."""
        new = [runtime for pool, runtime in prepared.items() if self._running.get(pool) is not runtime]
        await asyncio.gather(*(runtime.stop() for runtime in new))

    async def aclose(self) -> None:
        """Stop all runtimes."""
        running, self._running = self._running, {}
        await asyncio.gather(*(runtime.stop() for runtime in running.values()))
        self._local.close()


def addresses(prepared: Prepared) -> dict[str, str]:
    """The runtimes' addresses, by pool."""
    return {pool: runtime.address for pool, runtime in prepared.items()}
