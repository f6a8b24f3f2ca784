"""Ray Serve's REST API: the replicas of a deployment, and the order to change their number.

(Ray: `ray/dashboard/modules/serve/serve_head.py`. The order needs applications with `external_scaler_enabled: true`, a
setting that exists since Ray 2.53.)
"""

from collections.abc import Callable
from typing import NamedTuple, Protocol
from urllib.parse import quote, urlsplit

import aiohttp
import msgspec

from adapters.upstreams.dial import credentials
from adapters.whole_body import whole_body
from adapters.wire import decoding
from config.schema.config import PoolConfig
from config.schema.protocols.apps import RayServeProtocol
from gateway.traffic.discovery.target import DiscoveredEndpoint
from gateway.traffic.fleet.member import FleetError, tls_of

MAX_BYTES = 4 * 1024**2
SECONDS = 10.0
_REASONS = {
    404: "the application or the deployment does not exist",
    412: "the application is not deployed with `external_scaler_enabled: true`, or is being deleted",
}


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
