"""What the operators' door is about."""

from typing import Any, Protocol

from adapters.types import Order
from config.schema.config import Config
from gateway.auth.audit import Act
from gateway.auth.certificates import PeerCertificate
from gateway.auth.keys import Principal
from gateway.auth.store import KeyStore
from gateway.traffic.operations import Operation


class AdminBackend(Protocol):
    """One gateway, or a supervisor that speaks for its workers."""

    @property
    def config(self) -> Config:
        """The one in force."""
        ...

    @property
    def store(self) -> KeyStore:
        """Where keys and the audit log are. Blocks."""
        ...

    def authenticate(self, token: str | None, certificate: PeerCertificate | None, now_utc: float) -> Principal:
        """Who asks. Raises `CredentialError`."""
        ...

    def note(self, act: Act) -> None:
        """Take an act for the audit log. Never blocks."""
        ...

    async def readiness(self) -> tuple[bool, dict[str, Any]]:
        """Whether requests are taken and each model has an endpoint, and what to say of it."""
        ...

    async def exposition(self) -> bytes:
        """Every metric, in Prometheus's text format."""
        ...

    async def state(self) -> dict[str, Any]:
        """Every counter, and the health of every endpoint."""
        ...

    async def pools(self) -> list[dict[str, Any]]:
        """Every pool with its endpoints."""
        ...

    async def operate(self, operation: Operation) -> dict[str, Any]:
        """Change a pool; the endpoint as it is then. Raises `NotDone`."""
        ...

    async def order(self, model: str, order: Order, body: bytes) -> None:
        """Have the servers of a model load or unload it. Raises `NotDone`."""
        ...
