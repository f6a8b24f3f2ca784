"""`/admin/experiments`: lists experiments with their effects and time series; pauses, continues and stops them."""

import asyncio
from typing import Any, cast

from aiohttp import web

from gateway.admin.api.backend import AdminBackend
from gateway.admin.api.body import read_object
from gateway.admin.api.guard import AdminRefused, recorded, visit
from gateway.features.rollouts.operators import views
from gateway.state.errors import StateError
from policies.experiments.decide import ExperimentVerb
from policies.experiments.progress import ExperimentProgress
from policies.rollouts.decide import OrderRefused


class ExperimentsFront:
    """The handlers. The decider follows an order at once."""

    def __init__(self, backend: AdminBackend) -> None:
        self._backend = backend

    def routes(self) -> list[web.RouteDef]:
        """All routes."""
        one = "/admin/experiments/{experiment}"
        return [
            web.get("/admin/experiments", self._list),
            web.get(one, self._show),
            web.get(f"{one}/series", self._series),
            web.post(f"{one}/{{verb:pause|on|stop}}", self._order),
        ]

    async def _list(self, _: web.Request) -> web.Response:
        return web.json_response({"experiments": await self._views()})

    async def _show(self, request: web.Request) -> web.Response:
        return web.json_response(await self._view(request.match_info["experiment"]))

    async def _series(self, request: web.Request) -> web.Response:
        view = await self._view(request.match_info["experiment"])
        try:
            series = await self._backend.decider.series(view["name"])
        except StateError as error:
            raise AdminRefused(503, "database_unavailable", str(error)) from None
        arms = [arm["name"] for arm in view.get("arms", ())]
        return web.json_response({"name": view["name"], "metric": view.get("metric"), "arms": arms, "points": series})

    async def _order(self, request: web.Request) -> web.Response:
        await read_object(request)
        name, verb = request.match_info["experiment"], cast(ExperimentVerb, request.match_info["verb"])
        try:
            progress = await self._backend.decider.order(name, verb, visit(request).actor, "experiment")
        except OrderRefused as error:
            raise AdminRefused(409, "order_refused", str(error)) from None
        assert isinstance(progress, ExperimentProgress)
        recorded(request)  # in the transaction of the order
        body = {"name": name, "status": progress.status, "reason": progress.reason, "shares": progress.shares}
        return web.json_response(body)

    async def _views(self) -> list[dict[str, Any]]:
        """Every experiment, computed in a thread: intervals of many arms and metrics take a while."""
        decider = self._backend.decider
        return await asyncio.to_thread(views, decider.planned, decider.progress, "experiment")

    async def _view(self, name: str) -> dict[str, Any]:
        for view in await self._views():
            if view["name"] == name:
                return view
        raise AdminRefused(404, "no_such_experiment", "the file has no experiment of this name")
