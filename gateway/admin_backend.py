"""The operators' door of one gateway: what it asks, answered."""

from typing import TYPE_CHECKING, Any

from adapters.errors import InferenceError
from adapters.types import ModelOrder, Order
from config.schema.config import Config
from gateway.auth.audit import Act
from gateway.auth.certificates import PeerCertificate
from gateway.auth.keys import Principal
from gateway.auth.store import KeyStore
from gateway.fronts import errors
from gateway.fronts.admin.front import describe
from gateway.fronts.admin.pools import describe_endpoint, describe_pools
from gateway.traffic.operations import NotDone, Operation, operate

if TYPE_CHECKING:
    from gateway.app import Gateway


class GatewayBackend:
    """An `AdminBackend`."""

    def __init__(self, gateway: "Gateway") -> None:
        self._gateway = gateway

    @property
    def config(self) -> Config:
        """The one in force."""
        return self._gateway.config

    @property
    def store(self) -> KeyStore:
        """Where keys and the audit log are."""
        return self._gateway.identity.store

    def authenticate(self, token: str | None, certificate: PeerCertificate | None, now_utc: float) -> Principal:
        """Who asks. Raises `CredentialError`."""
        return self._gateway.core.snapshot.credentials.authenticate(token, certificate, now_utc)

    def note(self, act: Act) -> None:
        """For the audit log."""
        if self._gateway.trail is not None:
            self._gateway.trail.note(act)

    async def readiness(self) -> tuple[bool, dict[str, Any]]:
        """Whether requests are taken and each model has an endpoint. A database that is away takes no part in it:
        the keys known stay valid."""
        missing, accepting = self._gateway.models_without_endpoint(), self._gateway.accepting
        ready = accepting and not missing
        status = "ready" if ready else "not ready" if accepting else "draining"
        return ready, {"status": status, "models_without_endpoint": missing}

    async def exposition(self) -> bytes:
        """Every metric."""
        self._gateway.core.telemetry.flush()
        return self._gateway.metrics.exposition()

    async def state(self) -> dict[str, Any]:
        """Every counter, and the health of every endpoint."""
        return {**describe(self._gateway), "key_database": {"available": self._gateway.identity.database_available}}

    async def pools(self) -> list[dict[str, Any]]:
        """Every pool with its endpoints."""
        return describe_pools(self._gateway.fleet, self._gateway.clock())

    async def operate(self, operation: Operation) -> dict[str, Any]:
        """Change a pool; the endpoint as it is then. Raises `NotDone`."""
        member = operate(self._gateway.fleet, operation)
        if member is None:
            return {"pool": operation.pool, "endpoint": operation.endpoint, "removed": True}
        return describe_endpoint(member, self._gateway.clock())

    async def order(self, model: str, order: Order, body: bytes) -> None:
        """Have the servers of a model load or unload it. Raises `NotDone`."""
        try:
            await self._gateway.core.order(ModelOrder(model=model, order=order, body=body))
        except InferenceError as error:
            raise NotDone(errors.status_of(error), error.code, error.message) from None
