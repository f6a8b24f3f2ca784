"""The batches of the pools' providers."""

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

from adapters.upstreams.provided.making import make
from adapters.upstreams.provided.provider import ProviderBatches
from config.schema.config import PoolConfig
from gateway.request.snapshot import Snapshot


class PoolProvider(NamedTuple):
    """The provider of one pool, as it is configured."""

    config: PoolConfig
    batches: ProviderBatches


class Providers:
    """The providers of the configuration in force, by pool."""

    def __init__(self, snapshot: Callable[[], Snapshot]) -> None:
        self._snapshot = snapshot
        self._seen: Snapshot | None = None
        self._configs: dict[str, PoolConfig] = {}
        self._made: dict[str, PoolProvider] = {}
        self._closing: set[asyncio.Task[None]] = set()
        self.unused = Counter[tuple[str, str]]()
        """Lines of results that are those of no request, by pool and reason."""

    @property
    def pools(self) -> frozenset[str]:
        """The pools whose lines are submitted to a provider."""
        self._reread()
        return frozenset(self._configs)

    def of(self, pool: str) -> PoolProvider | None:
        """The provider of a pool; None if the configuration has none any more."""
        self._reread()
        config = self._configs.get(pool)
        if config is None:
            return None
        made = self._made.get(pool)
        if made is None or made.config != config:
            self._retire(pool)
            made = self._made[pool] = PoolProvider(config, make(config))
        return made

    async def aclose(self) -> None:
        """Close all connections."""
        for pool in list(self._made):
            self._retire(pool)
        await asyncio.gather(*self._closing)

    def _reread(self) -> None:
        snapshot = self._snapshot()
        if snapshot is self._seen:
            return
        self._seen = snapshot
        self._configs = {pool.name: pool for pool in snapshot.config.pools if pool.provider_batches is not None}
        for pool in self._made.keys() - self._configs.keys():
            self._retire(pool)

    def _retire(self, pool: str) -> None:
        if (made := self._made.pop(pool, None)) is not None:
            task = asyncio.create_task(made.batches.aclose())
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)
