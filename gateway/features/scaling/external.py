"""A pool whose endpoints an autoscaler outside of the gateway starts, such as KEDA, by the decisions of the gateway."""

from collections.abc import Mapping, Sequence
from typing import Any

from config.schema.config import PoolConfig
from gateway.features.scaling.pool_scale import PoolScale
from gateway.traffic.fleet.runtime import OwnRuntime
from gateway.traffic.standing import PoolDemand


class ExternalScale(PoolScale):
    """Decides as for a runtime. The replicas are the endpoints that the processes have discovered."""

    def __init__(self, pool: PoolConfig) -> None:
        super().__init__(pool)
        self._endpoints = 0
        self._started: float | None = None
        """The time since which the first endpoint is needed and missing."""

    def sample(self, demands: Sequence[PoolDemand], running: Mapping[int, OwnRuntime], now: float) -> None:
        super().sample(demands, running, now)
        self._endpoints = max((demand.endpoints for demand in demands), default=0)
        self.ready = frozenset(range(max((len(demand.ready) for demand in demands), default=0)))
        if self.ready:
            if self._started is not None:
                self.starts.measure(now - self._started)
            self._started = None
        elif self._started is None and self.is_active:
            self._started = now

    @property
    def count(self) -> int:
        return self._endpoints

    def metrics_of_replicas(self) -> dict[str, str]:
        return {}

    def _starting(self) -> dict[int, float]:
        return {} if self._started is None else {0: self._started}

    def describe(self) -> dict[str, Any]:
        """The same. The gateway does not see why an endpoint of others does not serve, so it is starting."""
        state = super().describe()
        return {**state, "starting": max(state["starting"], self.count - len(self.ready))}
