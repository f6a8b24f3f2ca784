"""`/admin/usage`: what tenants have used and spent, by label and period; and their invoices."""

import asyncio
import io
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, TypeVar

import msgspec
from aiohttp import web

from config.schema.money import format_amount
from gateway.admin.api.backend import AdminBackend
from gateway.admin.api.body import bad_queries, number_of, query_parameters
from gateway.admin.api.guard import AdminRefused, visit
from gateway.features.usage.discounts import volumes_of
from gateway.features.usage.export import focus_of, invoice, month_of, rows_csv, shown
from gateway.features.usage.parquet import ParquetMissing, write_focus
from gateway.features.usage.query import OVERVIEW, PARAMETERS, overview_query, query_of
from gateway.features.usage.report import PER_CHARGE, PER_LINE, UsageQuery, groups_of
from gateway.features.usage.store import UsageStore

T = TypeVar("T")
_MOST_ALERTS = 1000
_FORMATS = ("json", "csv", "focus", "parquet")


class UsageFront:
    """The handlers. A tenant-admin reads the usage of its own tenant."""

    def __init__(self, backend: AdminBackend) -> None:
        self._backend = backend

    def routes(self) -> list[web.RouteDef]:
        """All routes."""
        return [
            web.get("/admin/usage", self._list),
            web.get("/admin/usage/overview", self._overview),
            web.get("/admin/tenants/{tenant}/invoices/{month}", self._invoice),
            web.get("/admin/tenants/{tenant}/alerts", self._alerts),
        ]

    async def _list(self, request: web.Request) -> web.Response:
        form = request.query.get("format", "json")
        if form not in _FORMATS:
            raise AdminRefused(400, "bad_query", f"`format` must be {' or '.join(_FORMATS)}", param="format")
        with bad_queries():
            query = query_of(query_parameters(request, PARAMETERS, "format"), visit(request).within)
        if form in ("focus", "parquet"):
            query = query._replace(by=PER_CHARGE, per="day")
        rows = await self._read(lambda store: store.report(query))
        groups = groups_of(query)
        after = [rows[-1][name] for name in groups] if len(rows) == query.limit else None
        following = {} if after is None else {"x-next": msgspec.json.encode(after).decode("latin-1")}
        if form == "json":
            stored, within = await self._backend.storage.read(), visit(request).within
            storage = {name: each for name, each in stored.items() if within in (None, name)}
            return web.json_response({"usage": [shown(row) for row in rows], "next": after, "storage": storage})
        if form == "parquet":
            headers = {**following, "content-disposition": 'attachment; filename="usage-focus.parquet"'}
            body = await asyncio.to_thread(_parquet, rows)
            return web.Response(body=body, content_type="application/vnd.apache.parquet", headers=headers)
        text = focus_of(rows) if form == "focus" else rows_csv(groups, rows)
        return web.Response(text=text, content_type="text/csv", headers=following)

    async def _overview(self, request: web.Request) -> web.Response:
        """The usage of a period by one label, beside the period before, with a forecast for the month."""
        with bad_queries():
            query = overview_query(query_parameters(request, OVERVIEW), visit(request).within)
        return web.json_response(await self._read(lambda store: store.overview(query)))

    async def _invoice(self, request: web.Request) -> web.Response:
        tenant, month = request.match_info["tenant"], request.match_info["month"]
        try:
            begin, end = month_of(month)
        except ValueError:
            raise AdminRefused(404, "no_such_month", "a month is written as 2026-11") from None
        query = UsageQuery(begin, end, PER_LINE, None, tenant)
        rows = await self._read(lambda store: store.report(query))
        return web.json_response(invoice(tenant, month, rows, volumes_of(self._backend.config)))

    async def _alerts(self, request: web.Request) -> web.Response:
        """The newest alerts of soft budgets."""
        limit = min(number_of(request, "limit") or 100, _MOST_ALERTS)
        store = await self._backend.alerts.store()
        rows = await asyncio.to_thread(store.newest, request.match_info["tenant"], limit)
        return web.json_response({"alerts": [_alert(row) for row in rows]})

    async def _read(self, work: Callable[[UsageStore], T]) -> T:
        if self._backend.config.usage is None:
            raise AdminRefused(404, "usage_not_recorded", "the configuration has no section `usage`")
        writer = self._backend.usage
        await writer.write()  # so that a report has what was used until now
        store = await writer.store()
        return await asyncio.to_thread(work, store)


def _parquet(rows: list[dict[str, Any]]) -> bytes:
    file = io.BytesIO()
    try:
        write_focus(rows, file)
    except ParquetMissing as error:
        raise AdminRefused(501, "not_installed", str(error)) from None
    return file.getvalue()


def _alert(row: Mapping[str, Any]) -> dict[str, Any]:
    shown = {
        name: row[name] for name in ("id", "tenant", "team", "budget", "threshold", "currency", "webhook") if row[name]
    }
    times = {"at": row["at"], "from": row["begin"], "to": row["end"]}
    shown |= {
        name: datetime.fromtimestamp(int(at), UTC).isoformat().replace("+00:00", "Z") for name, at in times.items()
    }
    state = row["outcome"] or "waiting"
    return {**shown, "spent": format_amount(int(row["spent"])), "state": state, "attempts": row["attempts"]}
