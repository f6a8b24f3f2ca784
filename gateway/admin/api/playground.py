"""`/admin/playground`: requests to models on behalf of a signed-in person.

The person's tenant, limits and budgets apply. An operator may act for another tenant, which the audit log records.
"""

from urllib.parse import quote

from aiohttp import web

from gateway.admin.api.backend import AdminBackend
from gateway.admin.api.body import body_of
from gateway.admin.api.guard import AdminRefused, acted, recorded, visit
from gateway.admin.playground.relay import NoProcess, PlaygroundCall, PlaygroundRelay
from gateway.auth.keys import Principal

BODY_SECONDS = 60.0
_PATHS = {"chat": "/v1/chat/completions", "embeddings": "/v1/embeddings"}


class PlaygroundFront:
    """The handlers. They name no host: each request goes to a process of this gateway."""

    def __init__(self, backend: AdminBackend) -> None:
        self._backend = backend
        self._relay = PlaygroundRelay(backend.calls_socket)

    def routes(self) -> list[web.RouteDef]:
        """All routes."""
        base = "/admin/playground"
        return [
            web.get(f"{base}/models", self._models),
            web.get(f"{base}/metadata/{{model:[^/].{{0,255}}}}", self._metadata),
            web.get(f"{base}/outcomes/{{id}}", self._outcome),
            web.post(f"{base}/{{kind:chat|embeddings}}", self._generate),
            web.post(f"{base}/infer/{{model:[^/].{{0,255}}}}", self._infer),
        ]

    async def _models(self, request: web.Request) -> web.StreamResponse:
        return await self._forward(request, "GET", "/v1/models")

    async def _metadata(self, request: web.Request) -> web.StreamResponse:
        return await self._forward(request, "GET", f"/v2/models/{_model(request)}")

    async def _generate(self, request: web.Request) -> web.StreamResponse:
        return await self._post(request, _PATHS[request.match_info["kind"]])

    async def _infer(self, request: web.Request) -> web.StreamResponse:
        return await self._post(request, f"/v2/models/{_model(request)}/infer")

    async def _outcome(self, request: web.Request) -> web.Response:
        try:
            outcome = await self._relay.outcome(request.match_info["id"], visit(request).within)
        except NoProcess as error:
            raise AdminRefused(503, "no_process", str(error)) from None
        if outcome is None:
            raise AdminRefused(404, "no_such_request", "no recent request of this console has the id")
        return web.Response(body=outcome, content_type="application/json")

    async def _post(self, request: web.Request, path: str) -> web.StreamResponse:
        principal = self._principal(request)
        own = visit(request).principal
        if own is None or own.tenant != principal.tenant:
            acted(request, "playground.call", principal.tenant, path=path)
        else:
            recorded(request)  # the access log has it, as any request of the tenant
        async with body_of(request, self._backend.config.http.max_body, BODY_SECONDS) as body:
            return await self._forward(request, "POST", path, body)

    async def _forward(self, request: web.Request, method: str, path: str, body: bytes = b"") -> web.StreamResponse:
        call = PlaygroundCall(self._principal(request), method, path, body)
        try:
            return await self._relay.forward(call, request)
        except NoProcess as error:
            raise AdminRefused(503, "no_process", str(error)) from None

    def _principal(self, request: web.Request) -> Principal:
        """The principal of the session; for an operator, of the tenant in the query if there is one."""
        visitor, tenant = visit(request), request.query.get("tenant")
        own = visitor.principal
        if visitor.within is not None and tenant not in (None, visitor.within):
            raise AdminRefused(403, "forbidden", "a tenant's admin acts for its own tenant", param="tenant")
        if own is not None and own.tenant and tenant in (None, own.tenant):
            return own
        tenants = [entry.name for entry in self._backend.config.tenants]
        tenant = tenants[0] if tenant is None else tenant
        if tenant not in tenants:
            raise AdminRefused(404, "no_such_tenant", "no tenant has this name", param="tenant")
        return Principal(tenant, f"console:{visitor.actor.id}")


def _model(request: web.Request) -> str:
    return quote(request.match_info["model"], safe="")
