"""A deployment of Ray Serve whose number of replicas the gateway decides. Ray Serve starts, stops and balances them."""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from config.schema.config import PoolConfig
from gateway.features.scaling.external import ExternalScale
from gateway.features.scaling.serve_orders import DeploymentSize, HttpServeOrders, ServeError, ServeOrders
from gateway.traffic.fleet.standing import PoolDemand

log = logging.getLogger(__name__)
LOST_READS = 3
"""Failed calls in a row after which the pool reports a failure."""


class ServeScale(ExternalScale):
    """Decides as for a runtime. The replicas are those of the deployment, behind the one endpoint of the pool."""

    def __init__(self, pool: PoolConfig, orders: ServeOrders | None = None) -> None:
        self._size = DeploymentSize(0, 0)
        self._first_read: float | None = None
        """The time of the first size: a gateway that starts does not know the demand before."""
        self._growing: float | None = None
        """The time since which the deployment has fewer replicas than it should."""
        self._failures = 0
        self._error = self._logged = ""
        self._task: asyncio.Task[None] | None = None
        self._orders = orders or HttpServeOrders(lambda: self._pool)
        super().__init__(pool)

    def configure(self, pool: PoolConfig) -> None:
        super().configure(pool)
        self._pool = pool

    def sample(self, demands: Sequence[PoolDemand], running: Mapping[int, Any], now: float) -> None:
        super().sample(demands, running, now)
        self.ready = frozenset(range(self._size.running)) if self.ready else frozenset()

    # ── the deployment ────────────────────────────────────────────────────────────────────────────────

    def follow(self, clock: Callable[[], float]) -> None:
        """Begin to read the replicas, and to change their number if it differs from the decision."""
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._visit(clock), name=f"ray serve of {self._name}")

    async def _visit(self, clock: Callable[[], float]) -> None:
        try:
            self._read(await self._orders.size(), clock())
            replicas = self.decision.replicas
            if replicas != self._size.target and not self._may_be_needed(replicas, clock()):
                await self._orders.scale(replicas)
                message = "pool %s: Ray Serve runs %d replicas after %d: %s"
                log.info(message, self._name, replicas, self._size.target, self.decision.reason)
            self._failures, self._error = 0, ""
        except ServeError as error:
            self._failures += 1
            self._error = str(error)
            if self._failures == LOST_READS and self._logged != self._error:
                log.error("pool %s: the replicas are unchanged: %s", self._name, error)
                self._logged = self._error

    def _read(self, size: DeploymentSize, now: float) -> None:
        if self._first_read is None:
            self._first_read = now
        self._size = size
        if size.running >= size.target:
            if self._growing is not None:
                self.starts.measure(now - self._growing)
            self._growing = None
        elif self._growing is None:
            self._growing = now

    def _may_be_needed(self, replicas: int, now: float) -> bool:
        """Whether replicas may be needed that ran before the gateway started."""
        return (
            replicas < self._size.target and self._first_read is not None and now - self._first_read < self._config.hold
        )

    def close(self) -> None:
        """Cancel a call in progress."""
        if self._task is not None:
            self._task.cancel()

    # ── reports ───────────────────────────────────────────────────────────────────────────────────────

    @property
    def count(self) -> int:
        return self._size.target

    def _starting(self) -> dict[int, float]:
        if self._growing is None or self.failure:
            return {}
        return dict.fromkeys(range(self._size.running, self._size.target), self._growing)

    @property
    def failure(self) -> str:
        return self._error if self._failures >= LOST_READS else ""
