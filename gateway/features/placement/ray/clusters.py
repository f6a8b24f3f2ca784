"""The Ray clusters of the configuration: one driver for each address and interpreter."""

import asyncio
from collections.abc import Iterator

from config.schema.runtimes.ray import PlacedRuntime
from gateway.features.placement.ray.cluster import RayCluster
from gateway.features.placement.ray.commands import spec_of
from gateway.features.placement.ray.runtime import RayRuntime
from gateway.traffic.fleet.runtime import OnExit


class RayClusters:
    """Creates replicas in clusters, and the clusters for them."""

    def __init__(self) -> None:
        self._clusters: dict[tuple[str, str | None], RayCluster] = {}

    def __iter__(self) -> Iterator[RayCluster]:
        return iter(self._clusters.values())

    def make(self, pool: str, config: PlacedRuntime, on_exit: OnExit, number: int) -> RayRuntime:
        """A replica of a pool's runtime."""
        assert config.ray is not None
        place = (config.ray.address, config.ray.driver)
        if place not in self._clusters:
            self._clusters[place] = RayCluster(config.ray)
        return RayRuntime(pool, config, spec_of(pool, number, config), number, on_exit, self._clusters[place])

    def occupies(self, pool: str) -> bool:
        """Whether a replica of a pool is placed in a cluster."""
        return any(cluster.occupies(pool) for cluster in self)

    async def aclose(self) -> None:
        """End the drivers. The replicas continue until their leases end."""
        await asyncio.gather(*(cluster.aclose() for cluster in self))
        self._clusters = {}
