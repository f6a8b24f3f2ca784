"""Orders to the servers of a model, on the admin listener: Triton's repository extension, for operators only."""

import asyncio

from aiohttp import web

from adapters.types import Order
from gateway.fronts.admin.backend import AdminBackend
from gateway.fronts.admin.guard import Refused, acted
from gateway.traffic.operations import NotDone

BODY_SECONDS = 60.0
"""A load may bring the model's files."""


class Orders:
    """The handlers. The backend forwards each order to the servers."""

    def __init__(self, backend: AdminBackend) -> None:
        self._backend = backend

    def routes(self) -> list[web.RouteDef]:
        """Triton's paths, so that its clients work with the address of this listener."""
        model = "/v2/repository/models/{model}"
        return [web.post(f"{model}/load", self._load), web.post(f"{model}/unload", self._unload)]

    async def _load(self, request: web.Request) -> web.Response:
        return await self._give(request, "load")

    async def _unload(self, request: web.Request) -> web.Response:
        return await self._give(request, "unload")

    async def _give(self, request: web.Request, order: Order) -> web.Response:
        model = request.match_info["model"]
        acted(request, f"model.{order}", model)
        body = await _read(request, self._backend.config.http.max_body)
        try:
            await self._backend.order(model, order, body)
        except NotDone as error:
            raise Refused(error.status, error.code, str(error)) from None
        return web.json_response({"name": model, order: True})


async def _read(request: web.Request, limit: int) -> bytes:
    """The body. Raises `Refused` and aiohttp's 413."""
    try:
        async with asyncio.timeout(BODY_SECONDS):
            return await request.clone(client_max_size=limit).read()
    except TimeoutError:
        raise Refused(408, "request_timeout", "the body did not come in time") from None
