"""The operations that the admin API needs from the process that serves it."""

from typing import TYPE_CHECKING, Any, Protocol

from prometheus_client.registry import Collector

from adapters.types import Order
from config.schema.config import Config
from gateway.admin.lifecycle import Lifecycle
from gateway.auth.audit import Act
from gateway.auth.certificates import PeerCertificate
from gateway.auth.keys import ApiKey, Principal
from gateway.auth.store import KeyStore
from gateway.traffic.fleet.operations import Operation

if TYPE_CHECKING:
    from gateway.features.alerts.writer import AlertWriter
    from gateway.features.batches.service import BatchService
    from gateway.features.live.board import LiveBoard
    from gateway.features.quota.report import StorageReport
    from gateway.features.requests.writer import RequestWriter
    from gateway.features.rollouts.decider import Decider
    from gateway.features.usage.writer import UsageWriter


class AdminBackend(Protocol):
    """A gateway of one process, or a supervisor on behalf of its workers."""

    @property
    def config(self) -> Config:
        """The configuration in force."""

    @property
    def lifecycle(self) -> Lifecycle:
        """The file, and the status of the configuration."""

    @property
    def store(self) -> KeyStore:
        """The database of keys and the audit log. Its methods block."""

    @property
    def decider(self) -> "Decider":
        """The decider of rollouts."""

    @property
    def usage(self) -> "UsageWriter":
        """The writer of usage, and its store."""

    @property
    def requests(self) -> "RequestWriter":
        """The writer of the records of requests, and its store."""

    @property
    def batches(self) -> "BatchService | None":
        """Files and batches; None without `batches` in the configuration."""

    @property
    def alerts(self) -> "AlertWriter":
        """The writer of alerts of soft budgets, and its store."""

    @property
    def storage(self) -> "StorageReport":
        """The bytes that tenants store."""

    @property
    def live(self) -> "LiveBoard":
        """The recent figures of all replicas."""

    @property
    def http_address(self) -> tuple[str, int]:
        """The address of the HTTP listener for clients."""

    @property
    def demo(self) -> ApiKey | None:
        """The demo key, if the configuration has one."""

    def authenticate(self, token: str | None, certificate: PeerCertificate | None, now_utc: float) -> Principal:
        """The holder of a credential. Raises `CredentialError`."""

    async def count(self, principal: Principal, size: int) -> None:
        """Count a request of `size` bytes against the limits of its tenant. Raises `NotDone`."""

    def holder(self, key_id: str, now_utc: float) -> Principal | None:
        """The principal of a key with its present rights; None for a key that is not valid."""

    def note(self, act: Act) -> None:
        """Append an act to the audit log. Never blocks."""

    async def readiness(self) -> tuple[bool, dict[str, Any]]:
        """Whether requests are accepted and each model has an endpoint, and the body that reports it."""

    async def metrics(self) -> Collector:
        """Every metric."""

    async def state(self) -> dict[str, Any]:
        """Every counter, and the health of every endpoint."""

    async def load(self) -> dict[str, Any]:
        """The part of the state that changes from second to second; with several processes, the workers."""

    async def pools(self) -> list[dict[str, Any]]:
        """Every pool with its endpoints."""

    async def operate(self, operation: Operation) -> dict[str, Any]:
        """Change a pool. Returns the endpoint after the change. Raises `NotDone`."""

    async def order(self, model: str, order: Order, body: bytes) -> None:
        """Load or unload a model on its servers. Raises `NotDone`."""

    def calls_socket(self) -> str | None:
        """The private socket of a process that serves clients, for the console's requests to models; None without such
        a process."""
