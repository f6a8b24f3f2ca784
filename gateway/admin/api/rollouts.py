"""`/admin/rollouts`: lists rollouts with their evidence; pauses them, continues them, and takes them back."""

from typing import Any, Literal, cast

from aiohttp import web

from gateway.admin.api.backend import AdminBackend
from gateway.admin.api.body import read_object
from gateway.admin.api.guard import AdminRefused, recorded, visit
from gateway.features.rollouts.operators import views
from gateway.state.errors import StateError
from policies.rollouts.decide import OrderRefused
from policies.rollouts.progress import RolloutProgress

Verb = Literal["pause", "on", "back"]


class RolloutsFront:
    """The handlers. The decider follows an order at once."""

    def __init__(self, backend: AdminBackend) -> None:
        self._backend = backend

    def routes(self) -> list[web.RouteDef]:
        """All routes."""
        one = "/admin/rollouts/{rollout}"
        return [
            web.get("/admin/rollouts", self._list),
            web.get(one, self._show),
            web.get(f"{one}/series", self._series),
            web.post(f"{one}/{{verb:pause|on|back}}", self._order),
        ]

    async def _list(self, _: web.Request) -> web.Response:
        decider = self._backend.decider
        return web.json_response({"rollouts": views(decider.planned, decider.progress)})

    async def _show(self, request: web.Request) -> web.Response:
        return web.json_response(self._view(request.match_info["rollout"]))

    async def _series(self, request: web.Request) -> web.Response:
        name = self._view(request.match_info["rollout"])["name"]
        try:
            series = await self._backend.decider.series(name)
        except StateError as error:
            raise AdminRefused(503, "database_unavailable", str(error)) from None
        return web.json_response({"name": name, "points": series})

    def _view(self, name: str) -> dict[str, Any]:
        decider = self._backend.decider
        for view in views(decider.planned, decider.progress):
            if view["name"] == name:
                return view
        raise AdminRefused(404, "no_such_rollout", "the file has no rollout of this name")

    async def _order(self, request: web.Request) -> web.Response:
        await read_object(request)
        name, verb = request.match_info["rollout"], cast(Verb, request.match_info["verb"])
        try:
            progress = await self._backend.decider.order(name, verb, visit(request).actor)
        except OrderRefused as error:
            raise AdminRefused(409, "order_refused", str(error)) from None
        assert isinstance(progress, RolloutProgress)
        recorded(request)  # in the transaction of the order
        body = {"name": name, "status": progress.status, "reason": progress.reason, "weight": progress.share}
        return web.json_response(body)
