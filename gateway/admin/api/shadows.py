"""`/admin/shadows`: lists shadows with their verdicts and their evidence."""

import asyncio
from typing import Any

from aiohttp import web

from gateway.admin.api.backend import AdminBackend
from gateway.admin.api.guard import AdminRefused
from gateway.features.shadow.operators import sampled_view, shadow_views
from gateway.features.shadow.store import ShadowStore
from gateway.state.opened import Opened
from policies.shadowing.planned import planned


class ShadowsFront:
    """The handlers. They read the sums of all gateways from the state database."""

    def __init__(self, backend: AdminBackend) -> None:
        self._backend = backend
        self._store = Opened(lambda: ShadowStore(backend.config.state.database, backend.store.pepper))

    def routes(self) -> list[web.RouteDef]:
        """All routes."""
        return [web.get("/admin/shadows", self._list), web.get("/admin/shadows/{shadow}", self._show)]

    async def _list(self, _: web.Request) -> web.Response:
        return web.json_response({"shadows": await asyncio.to_thread(self._views)})

    async def _show(self, request: web.Request) -> web.Response:
        views = await asyncio.to_thread(self._views, request.match_info["shadow"])
        if not views:
            raise AdminRefused(404, "no_such_shadow", "the file has no shadow of this name")
        return web.json_response(views[0])

    def _views(self, name: str | None = None) -> list[dict[str, Any]]:
        """All shadows, or one with its samples. In a thread."""
        plans = [plan for plan in planned(self._backend.config) if name in (None, plan.name)]
        if not plans:
            return []
        store = self._store()
        views = shadow_views(plans, store.read())
        if name is None:
            return views
        return [sampled_view(view, plan, store) for view, plan in zip(views, plans, strict=True)]

    async def close(self, _: web.Application) -> None:
        """Close the database."""
        await asyncio.to_thread(self._store.close)
