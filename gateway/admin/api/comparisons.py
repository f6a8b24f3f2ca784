"""`/admin/rollouts` and `/admin/experiments`: lists them with their evidence; pauses, continues and ends them."""

import asyncio
from typing import Any, Literal, cast

from aiohttp import web

from gateway.admin.api.backend import AdminBackend
from gateway.admin.api.body import read_object
from gateway.admin.api.guard import AdminRefused, recorded, visit
from gateway.features.rollouts.operators import views
from gateway.features.rollouts.planned import Verb
from gateway.state.errors import StateError
from policies.rollouts.decide import OrderRefused
from policies.rollouts.progress import RolloutProgress

_LAST = {"rollout": "back", "experiment": "stop"}
"""The order that ends a comparison of a kind."""


class ComparisonsFront:
    """The handlers of one kind. The decider follows an order at once."""

    def __init__(self, backend: AdminBackend, kind: Literal["rollout", "experiment"]) -> None:
        self._backend = backend
        self._kind = kind

    def routes(self) -> list[web.RouteDef]:
        """All routes."""
        every = f"/admin/{self._kind}s"
        one = f"{every}/{{{self._kind}}}"
        return [
            web.get(every, self._list),
            web.get(one, self._show),
            web.get(f"{one}/series", self._series),
            web.post(f"{one}/{{verb:pause|on|{_LAST[self._kind]}}}", self._order),
        ]

    async def _list(self, _: web.Request) -> web.Response:
        return web.json_response({f"{self._kind}s": await self._views()})

    async def _show(self, request: web.Request) -> web.Response:
        return web.json_response(await self._view(request))

    async def _series(self, request: web.Request) -> web.Response:
        view = await self._view(request)
        try:
            series = await self._backend.decider.series(view["name"])
        except StateError as error:
            raise AdminRefused(503, "database_unavailable", str(error)) from None
        body: dict[str, Any] = {"name": view["name"]}
        if self._kind == "experiment":
            body |= {"metric": view.get("metric"), "arms": [arm["name"] for arm in view.get("arms", ())]}
        return web.json_response({**body, "points": series})

    async def _order(self, request: web.Request) -> web.Response:
        await read_object(request)
        name, verb = request.match_info[self._kind], cast(Verb, request.match_info["verb"])
        try:
            progress = await self._backend.decider.order(name, verb, visit(request).actor, self._kind)
        except OrderRefused as error:
            raise AdminRefused(409, "order_refused", str(error)) from None
        recorded(request)  # in the transaction of the order
        body: dict[str, Any] = {"name": name, "status": progress.status, "reason": progress.reason}
        if isinstance(progress, RolloutProgress):
            return web.json_response({**body, "weight": progress.share})
        return web.json_response({**body, "shares": progress.shares})

    async def _views(self) -> list[dict[str, Any]]:
        """All of the kind, computed in a thread: intervals of many arms and metrics take a while."""
        decider = self._backend.decider
        return await asyncio.to_thread(views, decider.planned, decider.progress, self._kind)

    async def _view(self, request: web.Request) -> dict[str, Any]:
        name = request.match_info[self._kind]
        for view in await self._views():
            if view["name"] == name:
                return view
        raise AdminRefused(404, f"no_such_{self._kind}", f"the file has no {self._kind} of this name")
