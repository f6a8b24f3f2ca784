"""A deployment of Ray Serve whose number of replicas the gateway decides. Ray Serve starts, stops and balances them.

(Ray: `ray/dashboard/modules/serve/serve_head.py`. The order needs applications with `external_scaler_enabled: true`, a
setting that exists since Ray 2.53.)
"""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol
from urllib.parse import quote, urlsplit

import aiohttp
import msgspec

from adapters.upstreams.dial import credentials
from adapters.whole_body import whole_body
from adapters.wire import decoding
from config.schema.config import PoolConfig
from config.schema.protocols.apps import RayServeProtocol
from gateway.features.scaling.external import ExternalScale
from gateway.traffic.discovery.target import DiscoveredEndpoint
from gateway.traffic.fleet.member import FleetError, tls_of
from gateway.traffic.standing import PoolDemand

MAX_BYTES = 4 * 1024**2
SECONDS = 10.0
_REASONS = {
    404: "the application or the deployment does not exist",
    412: "the application is not deployed with `external_scaler_enabled: true`, or is being deleted",
}
log = logging.getLogger(__name__)
LOST_READS = 3
"""Failed calls in a row after which the pool reports a failure."""


class ServeError(Exception):
    """A call that failed. The message is for operators and has no address."""


class _Replica(msgspec.Struct):
    state: str = ""


class _Deployment(msgspec.Struct):
    target_num_replicas: int = 0
    replicas: list[_Replica] = []


class _Application(msgspec.Struct):
    deployments: dict[str, _Deployment] = {}


class _Applications(msgspec.Struct):
    applications: dict[str, _Application] = {}


class DeploymentSize(NamedTuple):
    """The replicas of a deployment: the number that Ray Serve aims at, and those that serve."""

    target: int
    running: int


class ServeOrders(Protocol):
    """Calls for the deployment of a pool. Each raises `ServeError`."""

    async def size(self) -> DeploymentSize:
        """Read the replicas."""

    async def scale(self, replicas: int) -> None:
        """Change the number that Ray Serve aims at."""


class HttpServeOrders:
    """The calls over HTTP, at the dashboard's port of the pool's endpoint."""

    def __init__(self, pool: Callable[[], PoolConfig]) -> None:
        self._pool = pool

    async def size(self) -> DeploymentSize:
        application, deployment = self._names()
        body = await self._call("GET", "/api/serve/applications/")
        try:
            listed = msgspec.json.decode(body, type=_Applications).applications
        except decoding.MALFORMED_JSON:
            raise ServeError("the Serve REST API answers with no list of applications") from None
        if application not in listed or deployment not in listed[application].deployments:
            raise ServeError(_REASONS[404])
        described = listed[application].deployments[deployment]
        running = sum(replica.state == "RUNNING" for replica in described.replicas)
        return DeploymentSize(described.target_num_replicas, running)

    async def scale(self, replicas: int) -> None:
        application, deployment = (quote(name, safe="") for name in self._names())
        path = f"/api/v1/applications/{application}/deployments/{deployment}/scale"
        await self._call("POST", path, {"target_num_replicas": replicas})

    def _names(self) -> tuple[str, str]:
        pool = self._pool()
        assert isinstance(pool.protocol, RayServeProtocol)
        assert pool.scale is not None
        return pool.protocol.application or "", pool.scale.deployment or ""

    async def _call(self, method: str, path: str, body: object = None) -> bytes:
        pool = self._pool()
        assert isinstance(pool.protocol, RayServeProtocol)
        parts = urlsplit(DiscoveredEndpoint.of(pool.endpoints[0]).url)
        host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
        url = f"{parts.scheme}://{host}:{pool.protocol.dashboard_port}{path}"
        token = pool.protocol.dashboard_token
        headers = dict(credentials(pool, token)) if token is not None else {}
        try:
            connector = aiohttp.TCPConnector(ssl=tls_of(pool, "ray-serve") if parts.scheme == "https" else True)
            timeout = aiohttp.ClientTimeout(SECONDS)
            async with (
                aiohttp.ClientSession(connector=connector, timeout=timeout, headers=headers) as http,
                http.request(method, url, json=body, allow_redirects=False) as response,
            ):
                content = await whole_body(response, MAX_BYTES)
        except (aiohttp.ClientError, OSError, TimeoutError, FleetError) as error:
            raise ServeError(f"the Serve REST API failed ({type(error).__name__})") from None
        if response.status != 200:
            reason = _REASONS.get(response.status, f"status {response.status}")
            raise ServeError(f"the Serve REST API refuses {method}: {reason}")
        if content is None:
            raise ServeError(f"the list of applications is larger than {MAX_BYTES // 1024**2} MiB")
        return content


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
