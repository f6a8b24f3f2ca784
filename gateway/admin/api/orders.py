"""Loads and unloads models: Triton's repository extension, for operators only."""

from aiohttp import web

from adapters.types import Order
from gateway.admin.api.backend import AdminBackend
from gateway.admin.api.body import body_of
from gateway.admin.api.guard import acted

BODY_SECONDS = 60.0
"""Time for a body to arrive. A load may contain the model's files."""


class Orders:
    """The handlers. The backend forwards each order to the servers."""

    def __init__(self, backend: AdminBackend) -> None:
        self._backend = backend

    def routes(self) -> list[web.RouteDef]:
        """Triton's paths, so that its clients work with the address of this listener."""
        model = "/v2/repository/models/{model}"
        return [web.post(f"{model}/load", self._load), web.post(f"{model}/unload", self._unload)]

    async def _load(self, request: web.Request) -> web.Response:
        return await self._order(request, "load")

    async def _unload(self, request: web.Request) -> web.Response:
        return await self._order(request, "unload")

    async def _order(self, request: web.Request, order: Order) -> web.Response:
        model = request.match_info["model"]
        acted(request, f"model.{order}", model)
        async with body_of(request, self._backend.config.http.max_body, BODY_SECONDS) as body:
            if order == "unload" and request.query.get("force") != "true":
                self._backend.decider.check_unload(model)
            await self._backend.order(model, order, body)
        return web.json_response({"name": model, order: True})
