"""The operations behind the admin API in a process that serves clients."""

import math
import time
from typing import TYPE_CHECKING, Any

from prometheus_client.registry import Collector

from adapters import statuses
from adapters.errors import InferenceError
from adapters.requests import ModelOrder
from adapters.types import Order
from config.schema.config import Config
from gateway.admin.api.pools import describe_endpoint, describe_pools
from gateway.admin.lifecycle import Lifecycle
from gateway.auth.audit import Act
from gateway.auth.certificates import PeerCertificate
from gateway.auth.keys import ApiKey, Principal
from gateway.auth.store import KeyStore
from gateway.process.data_plane import DataPlane
from gateway.process.host import HostFeatures
from gateway.process.plane_state import describe, describe_load
from gateway.traffic.fleet.operations import NotDone, Operation, operate

if TYPE_CHECKING:
    from gateway.features.alerts.writer import AlertWriter
    from gateway.features.batches.service import BatchService
    from gateway.features.live.board import LiveBoard
    from gateway.features.quota.report import StorageReport
    from gateway.features.requests.writer import RequestWriter
    from gateway.features.rollouts.decider import Decider
    from gateway.features.usage.writer import UsageWriter


class PlaneBackend:
    """The part of an `AdminBackend` that a worker does for its supervisor."""

    def __init__(self, plane: DataPlane) -> None:
        self._plane = plane

    async def readiness(self) -> tuple[bool, dict[str, Any]]:
        """Whether requests are accepted and each model has an endpoint.

        The key database does not count: without it, the keys in memory stay valid.
        """
        missing, accepting = self._plane.models_without_endpoint(), self._plane.accepting
        ready = accepting and not missing
        status = "ready" if ready else "not ready" if accepting else "draining"
        return ready, {"status": status, "accepting": accepting, "models_without_endpoint": missing}

    async def metrics(self) -> Collector:
        """Every metric."""
        self._plane.core.telemetry.flush()
        return self._plane.metrics.registry

    async def state(self) -> dict[str, Any]:
        """Every counter, and the health of every endpoint."""
        identity = self._plane.identity
        keys: dict[str, Any] = {"available": identity.database_available}
        if math.isfinite(age := identity.keys_age) and age:
            keys["age_seconds"] = round(age)
        return {**describe(self._plane), "key_database": keys}

    async def load(self) -> dict[str, Any]:
        """The health of every endpoint, queues, and what ended in the last seconds."""
        self._plane.core.telemetry.flush()
        return {**describe_load(self._plane), "recent": self._plane.metrics.recent.window(time.time())}

    async def minutes(self) -> dict[str, Any]:
        """What ended in the last complete minutes, by their number (Unix time // 60)."""
        self._plane.core.telemetry.flush()
        return self._plane.metrics.recent.minutes(time.time())

    async def pools(self) -> list[dict[str, Any]]:
        """Every pool with its endpoints."""
        return describe_pools(self._plane.fleet, self._plane.clock())

    async def count(self, principal: Principal, size: int) -> None:
        """Count a request of the admin API against the limits of its tenant. Raises `NotDone`."""
        core, tenant, key, team = self._plane.core, principal.tenant, principal.subject, principal.team
        try:
            reservation = await core.ledger.reserve_state(tenant, key, team, size, core.clock())
        except InferenceError as error:
            raise NotDone(statuses.http_status(error), error.code, error.message) from None
        reservation.settle((1, 0, 0, size, 0), None, core.clock())

    async def operate(self, operation: Operation) -> dict[str, Any]:
        """Change a pool. Returns the endpoint after the change. Raises `NotDone`."""
        member = operate(self._plane.fleet, operation)
        if member is None:
            return {"pool": operation.pool, "endpoint": operation.endpoint, "removed": True}
        return describe_endpoint(member, self._plane.clock())

    async def order(self, model: str, order: Order, body: bytes) -> None:
        """Load or unload a model on its servers. Raises `NotDone`."""
        try:
            await self._plane.core.order(ModelOrder(model=model, order=order, body=body))
        except InferenceError as error:
            raise NotDone(statuses.http_status(error), error.code, error.message) from None


class HostBackend:
    """The part of an `AdminBackend` that one process does for its host."""

    def __init__(self, lifecycle: Lifecycle, host: HostFeatures) -> None:
        self.lifecycle = lifecycle
        self.host = host

    @property
    def config(self) -> Config:
        """The configuration in force."""
        return self.lifecycle.config

    @property
    def decider(self) -> "Decider":
        """The decider of rollouts."""
        return self.host.decider

    @property
    def usage(self) -> "UsageWriter":
        """The writer of usage."""
        return self.host.usage

    @property
    def requests(self) -> "RequestWriter":
        """The writer of the records of requests."""
        return self.host.requests

    @property
    def alerts(self) -> "AlertWriter":
        """The writer of alerts."""
        return self.host.alerts

    @property
    def storage(self) -> "StorageReport":
        """The bytes that tenants store."""
        return self.host.storage

    @property
    def live(self) -> "LiveBoard":
        """The recent figures of all replicas."""
        return self.host.live

    def note(self, act: Act) -> None:
        """Append an act to the audit log."""
        self.lifecycle.record(act)


class GatewayBackend(PlaneBackend, HostBackend):
    """The `AdminBackend` of a gateway of one process."""

    def __init__(self, plane: DataPlane, lifecycle: Lifecycle, host: HostFeatures) -> None:
        PlaneBackend.__init__(self, plane)
        HostBackend.__init__(self, lifecycle, host)

    @property
    def batches(self) -> "BatchService | None":
        """Files and batches."""
        return self._plane.features.service

    @property
    def store(self) -> KeyStore:
        """The database of keys and the audit log."""
        return self._plane.identity.store

    @property
    def http_address(self) -> tuple[str, int]:
        """The address of the HTTP listener."""
        return self._plane.listeners.http_address

    @property
    def demo(self) -> ApiKey | None:
        """The demo key."""
        return self._plane.demo

    def authenticate(self, token: str | None, certificate: PeerCertificate | None, now_utc: float) -> Principal:
        """The holder of a credential. Raises `CredentialError`."""
        return self._plane.core.snapshot.credentials.authenticate(token, certificate, now_utc)

    def holder(self, key_id: str, now_utc: float) -> Principal | None:
        """The principal of a valid key."""
        return self._plane.core.snapshot.credentials.keys.holder(key_id, now_utc)

    async def metrics(self) -> Collector:
        """Every metric."""
        await self.host.refresh()
        return await super().metrics()

    async def state(self) -> dict[str, Any]:
        """Every counter, the health of every endpoint, and the status of the configuration."""
        replicas = self.host.replicas()
        return {**await super().state(), "configuration": self.lifecycle.describe(), "replicas": replicas}

    async def load(self) -> dict[str, Any]:
        """The health of every endpoint, queues, what ended in the last seconds, and the replicas of runtimes."""
        return {**await super().load(), "replicas": self.host.replicas()}

    async def pools(self) -> list[dict[str, Any]]:
        """Every pool with its endpoints, and the replicas of its runtime."""
        pools = await super().pools()
        self.host.annotate(pools)
        return pools

    def calls_socket(self) -> str | None:
        """The private socket for the console's requests to models."""
        return self._plane.playground_path if self._plane.accepting else None
