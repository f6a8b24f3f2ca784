"""Adapter of Ray Serve over HTTP: an application below its route prefix."""

from __future__ import annotations

from adapters.base import Answer
from adapters.call import Call
from adapters.errors import BackendError, InferenceError, UpstreamTimeout
from adapters.http1.client import Client
from adapters.http1.message import Headers
from adapters.registry import Address
from adapters.requests import ModelQuery, ModelRequest
from adapters.upstreams import failed_status
from adapters.upstreams.apps.calls import by_status
from adapters.upstreams.apps.http_app import HttpAppAdapter, healthy
from adapters.upstreams.declared_tensors import json_answer, not_reported, ready_answer
from adapters.upstreams.dial import beside, http1_client, names, probe_path
from adapters.upstreams.failed_status import unknown_model
from adapters.upstreams.readiness import Readiness
from adapters.wire.apps import ray_serve as wire
from adapters.wire.oip import bodies as oip_bodies
from adapters.wire.oip.bodies import IndexEntry
from config.schema.config import PoolConfig
from config.schema.protocols.apps import RayServeProtocol

_APPLICATIONS = b"/api/serve/applications/"
MULTIPLEXED = "serve_multiplexed_model_id"


def make(pool: PoolConfig, address: Address) -> RayServeAdapter:
    """Return the adapter of one endpoint of a pool."""
    protocol = pool.protocol
    assert isinstance(protocol, RayServeProtocol)
    port = protocol.dashboard_port
    dashboard = None if port is None else beside(pool, address, port, protocol.dashboard_token)
    keyed = pool.has_credential
    return RayServeAdapter(
        http1_client(pool, address), protocol, dashboard, keyed=keyed, **names(pool), **probe_path(pool)
    )


def judged(request: ModelRequest, status: int, headers: Headers, body: bytes) -> InferenceError | None:
    """Classify the proxy's own responses: overload (503, or 429 with a time) and timeout (408)."""
    if status == 404 and wire.is_no_route(body):
        return unknown_model()
    if status == 408:
        return UpstreamTimeout("The upstream timed out.")
    return by_status(request, status, headers, body)


class RayServeAdapter(HttpAppAdapter):
    """Adapter of one endpoint.

    `dashboard` serves the Serve REST API. `model` is the id of a multiplexed model, if clients use another name.
    """

    def __init__(
        self,
        client: Client,
        protocol: RayServeProtocol,
        dashboard: Client | None = None,
        *,
        model: str | None = None,
        keyed: bool = False,
        probe: str | None = None,
    ) -> None:
        super().__init__(client, protocol, keyed=keyed, probe=probe, judge=judged)
        self._dashboard = dashboard
        self._application = protocol.application or ""
        self._multiplexed = protocol.multiplexed
        self._model = model
        self._readiness = Readiness(self._entries, client.now)

    async def call(self, request: ModelRequest, call: Call) -> Answer:
        return await self._readiness.explained(super().call(request, call), request, call)

    def _more(self, request: ModelRequest) -> list[tuple[str, str]]:
        return [(MULTIPLEXED, self._model or request.model)] if self._multiplexed else []

    # ── queries ───────────────────────────────────────────────────────────────────────────────────────

    async def probe(self, timeout: float) -> None:
        """Check the proxy, and check the application by the Serve REST API, which may run on another machine."""
        if self._dashboard is not None and (name := self._application or self._model):
            await self._check(self._dashboard, name, timeout)
        if self._probe is not None:
            await super().probe(timeout)
        elif not wire.has_route(await healthy(self._client, b"/-/routes", timeout), self._client.base_path):
            raise BackendError("The proxy has no route for the application.")

    async def _check(self, dashboard: Client, application: str, timeout: float) -> None:
        status = wire.status_of(await healthy(dashboard, _APPLICATIONS, timeout), application)
        if status.state != "READY":
            entry = IndexEntry(application, "", status.state, status.reason)
            raise failed_status.not_ready(ModelQuery(model=application), [entry])

    async def _answer_query(self, query: ModelQuery, call: Call) -> Answer:
        name = self._name(query)
        if query.about == "ready":
            return await self._ready(query, call)
        if query.about == "config" and self._dashboard is not None:
            application = wire.details_of(await healthy(self._dashboard, _APPLICATIONS, self._left(call)), name)
            if application is None:
                raise unknown_model()
            body = {"name": query.model, "platform": "ray-serve", "application": application}
            return json_answer(oip_bodies.encode(body))
        if query.about != "metadata":
            raise not_reported(query)
        return self._declared.answer_query(query)

    async def _ready(self, query: ModelQuery, call: Call) -> Answer:
        entries = await self._entries(query, call)
        if any(entry.state != "READY" for entry in entries):
            raise failed_status.not_ready(query, entries)
        try:
            await self.probe(self._left(call))
        except BackendError as error:
            raise failed_status.unavailable(query, error.message) from None
        return ready_answer(query)

    async def _entries(self, request: ModelRequest, call: Call) -> list[IndexEntry]:
        """Return the application's status from the Serve REST API; no entries without a dashboard."""
        if self._dashboard is None:
            return []
        body = await healthy(self._dashboard, _APPLICATIONS, self._left(call))
        status = wire.status_of(body, self._name(request))
        return [IndexEntry(request.model, request.version, status.state, status.reason)]

    def _name(self, request: ModelRequest) -> str:
        return self._application or self._model or request.model

    def _left(self, call: Call) -> float:
        return max(0.0, min(call.deadline.at - self._client.now(), call.deadline.first_byte))

    async def aclose(self) -> None:
        await super().aclose()
        if self._dashboard is not None:
            await self._dashboard.aclose()
