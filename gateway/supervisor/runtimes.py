"""The runtimes, started once whatever the number of workers."""

import asyncio
import logging

from config.schema.config import Config
from gateway.placement.launch import CannotLaunch
from gateway.placement.local import LocalRuntime, LocalRuntimes
from gateway.traffic.member import FleetError

log = logging.getLogger(__name__)
Prepared = dict[str, LocalRuntime]
"""By pool."""


class SharedRuntimes:
    """`prepare`, then either `commit` or `abandon`: until `commit` nothing that runs is touched."""

    def __init__(self) -> None:
        self._local = LocalRuntimes()
        self._running: Prepared = {}

    def get(self, pool: str) -> LocalRuntime | None:
        """The one of a pool."""
        return self._running.get(pool)

    def prepare(self, config: Config) -> Prepared:
        """Those that `config` wants; what is not there is started. Raises `FleetError`, having started nothing."""
        fresh = []
        prepared: Prepared = {}
        for pool in config.pools:
            if pool.runtime is None:
                continue
            known = self._running.get(pool.name)
            if known is None or known.config != pool.runtime:
                try:
                    known = self._local.make(pool.name, pool.runtime, lambda reason: None)  # probes tell the workers
                except CannotLaunch as error:
                    raise FleetError(f"pool {pool.name}: runtime: {error}") from None
                fresh.append(known)
            prepared[pool.name] = known
        for runtime in fresh:
            runtime.start()
        return prepared

    def commit(self, prepared: Prepared) -> list[LocalRuntime]:
        """These are in use from now on; returns those that nobody will ask any more, to be stopped when none does."""
        before, self._running = self._running, prepared
        return [runtime for pool, runtime in before.items() if prepared.get(pool) is not runtime]

    async def abandon(self, prepared: Prepared) -> None:
        """They will not be used: stop what was started for it."""
        new = [runtime for pool, runtime in prepared.items() if self._running.get(pool) is not runtime]
        await asyncio.gather(*(runtime.stop() for runtime in new))

    async def aclose(self) -> None:
        """Stop all that run."""
        running, self._running = self._running, {}
        await asyncio.gather(*(runtime.stop() for runtime in running.values()))
        self._local.close()


def addresses(prepared: Prepared) -> dict[str, str]:
    """Where they listen, by pool."""
    return {pool: runtime.address for pool, runtime in prepared.items()}
