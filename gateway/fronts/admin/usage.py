"""`/admin/usage`: what tenants have used and spent, by label and period; and their invoices."""

import asyncio
from collections.abc import Callable
from typing import TypeVar

import msgspec
from aiohttp import web

from gateway.fronts.admin.backend import AdminBackend
from gateway.fronts.admin.guard import AdminRefused, for_tenant_admins, visit
from gateway.usage.export import csv_of, focus_of, invoice, month_of, shown
from gateway.usage.labels import COUNTERS
from gateway.usage.query import PARAMETERS, BadQuery, query_of
from gateway.usage.report import PER_CHARGE, UsageQuery, groups_of
from gateway.usage.store import UsageStore

T = TypeVar("T")
_FORMATS = ("json", "csv", "focus")


class UsageFront:
    """The handlers. A tenant-admin reads the usage of its own tenant."""

    def __init__(self, backend: AdminBackend) -> None:
        self._backend = backend

    def routes(self) -> list[web.RouteDef]:
        """All routes."""
        return [
            web.get("/admin/usage", self._list),
            web.get("/admin/tenants/{tenant}/invoices/{month}", self._invoice),
        ]

    @for_tenant_admins
    async def _list(self, request: web.Request) -> web.Response:
        texts = dict(request.query)
        form = texts.pop("format", "json")
        if form not in _FORMATS:
            raise AdminRefused(400, "bad_query", f"`format` must be {' or '.join(_FORMATS)}", param="format")
        if unknown := sorted(set(texts) - set(PARAMETERS)):
            raise AdminRefused(400, "bad_query", f"`{unknown[0][:64]}` is not a parameter", param=unknown[0][:64])
        try:
            query = query_of(texts, visit(request).within)
        except BadQuery as error:
            status = 403 if error.name == "tenant" else 400
            raise AdminRefused(status, "bad_query", f"`{error.name}` {error}", param=error.name) from None
        if form == "focus":
            query = query._replace(by=PER_CHARGE, per="day")
        rows = await self._read(lambda store: store.report(query))
        groups = groups_of(query)
        after = [rows[-1][name] for name in groups] if len(rows) == query.limit else None
        following = {} if after is None else {"x-next": msgspec.json.encode(after).decode("latin-1")}
        if form == "json":
            return web.json_response({"usage": [shown(row) for row in rows], "next": after})
        text = focus_of(rows) if form == "focus" else csv_of((*groups, *COUNTERS), rows)
        return web.Response(text=text, content_type="text/csv", headers=following)

    @for_tenant_admins
    async def _invoice(self, request: web.Request) -> web.Response:
        tenant, month = request.match_info["tenant"], request.match_info["month"]
        try:
            begin, end = month_of(month)
        except ValueError:
            raise AdminRefused(404, "no_such_month", "a month is written as 2026-11") from None
        query = UsageQuery(begin, end, ("model",), None, tenant)
        return web.json_response(invoice(tenant, month, await self._read(lambda store: store.report(query))))

    async def _read(self, work: Callable[[UsageStore], T]) -> T:
        if self._backend.config.usage is None:
            raise AdminRefused(404, "usage_not_recorded", "the configuration has no section `usage`")
        writer = self._backend.usage
        await writer.write()  # so that a report has what was used until now
        store = await writer.store()
        return await asyncio.to_thread(work, store)
