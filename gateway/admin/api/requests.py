"""`/admin/requests`: a search of requests, and the timeline of one request."""

import asyncio
import time
from collections.abc import Callable
from typing import Any, TypeVar

from aiohttp import web

from config.schema.telemetry import RecordConfig
from gateway.admin.api.backend import AdminBackend
from gateway.admin.api.body import bad_queries, query_parameters
from gateway.admin.api.guard import AdminRefused, acted, visit
from gateway.features.journal.lines import HOUR_MICROS, MICROS, time_of
from gateway.features.journal.sink import names_users
from gateway.features.requests.query import PARAMETERS, query_of
from gateway.features.requests.report import following, summary, timeline, total
from gateway.features.requests.search import RequestQuery
from gateway.features.requests.store import RequestStore
from gateway.features.usage.query import BadQuery

T = TypeVar("T")


class RequestsFront:
    """The handlers. A tenant-admin reads the requests of its own tenant: those of others do not exist for it."""

    def __init__(self, backend: AdminBackend) -> None:
        self._backend = backend

    def routes(self) -> list[web.RouteDef]:
        """All routes."""
        return [
            web.get("/admin/requests", self._list),
            web.get("/admin/requests/{id}", self._show),
            web.post("/admin/requests/{id}/content", self._content),
        ]

    async def _list(self, request: web.Request) -> web.Response:
        texts = query_parameters(request, PARAMETERS)
        for name in ("totals", "choices"):
            if texts.get(name, "false") not in ("true", "false"):
                raise AdminRefused(400, "bad_query", f"`{name}` must be true or false", param=name)
        with bad_queries():
            query = query_of(texts, within := visit(request).within)
            if query.user is not None and not names_users(self._backend.config):
                raise BadQuery("user", "is not stored: `usage: {users: N}` in the file counts and stores end users")
        rows, of_tenant = await self._read(lambda store: store.search(query)), within is not None
        after = following(rows[-1]) if len(rows) == query.limit else None
        body: dict[str, Any] = {"requests": [summary(row, of_tenant=of_tenant) for row in rows], "next": after}
        if texts.get("totals", "false") == "true":
            whole = query._replace(after=None)
            sums = await self._read(lambda store: store.totals(whole))
            body["totals"] = {**_hours(whole), "sums": [total(each) for each in sums]}
        if texts.get("choices", "false") == "true":
            seen = query._replace(labels=tuple(each for each in query.labels if each.label == "tenant" and within))
            body["choices"] = await self._read(lambda store: store.choices(seen))
        return web.json_response(body)

    async def _show(self, request: web.Request) -> web.Response:
        """The newest request with an id; `at` selects another one, as clients may choose the same id again."""
        row = await self._stored(request)
        body = timeline(row, of_tenant=visit(request).within is not None)
        if self._may_read(request, row["tenant"]):
            body["content"] = "recorded"  # if it is in the sample
        return web.json_response(body)

    async def _content(self, request: web.Request) -> web.Response:
        """The recorded prompt and answer, redacted. A change of nothing, but each view is in the audit log."""
        row, record = await self._stored(request), self._backend.config.record
        acted(request, "content.view", f"{row['tenant']}/{row['id']}")
        if not self._may_read(request, row["tenant"]):
            raise AdminRefused(403, "content_hidden", "the tenant has not opted in: `tenants[].show_content`")
        content = None if record is None else await asyncio.to_thread(_recorded, record, row)
        if content is None:
            raise AdminRefused(404, "content_not_recorded", "this replica has no recorded content of the request")
        return web.json_response(content, headers={"Cache-Control": "no-store"})

    def _may_read(self, request: web.Request, tenant: str) -> bool:
        shown = {each.name: each.show_content for each in self._backend.config.tenants}.get(tenant)
        return shown is not None and (shown == "tenant" or visit(request).within is None)

    async def _stored(self, request: web.Request) -> dict[str, Any]:
        at = query_parameters(request, ("at",)).get("at")
        with bad_queries():
            begin = {} if at is None else {"from": at}
            query = query_of({"id": request.match_info["id"], **begin}, visit(request).within)
        if at is not None:
            query = query._replace(end=query.begin + 1)
        rows = await self._read(lambda store: store.search(query._replace(limit=1)))
        if not rows:
            raise AdminRefused(404, "no_such_request", "no request with this id is stored")
        return rows[0]

    async def _read(self, work: Callable[[RequestStore], T]) -> T:
        if self._backend.config.requests is None:
            raise AdminRefused(404, "requests_not_stored", "the configuration has no section `requests`")
        writer = self._backend.requests
        await writer.write()  # so that a search has the requests that wait in the journals
        store = await writer.store()
        return await asyncio.to_thread(work, store)


def _recorded(record: RecordConfig, row: dict[str, Any]) -> dict[str, Any] | None:
    from gateway.features.recording.views import recorded_content  # with cryptography

    return recorded_content(record, row["tenant"], row["id"], row["at"] / MICROS)


def _hours(query: RequestQuery) -> dict[str, str]:
    """The whole hours of the totals, until now."""
    begin, end = query.begin // HOUR_MICROS * HOUR_MICROS, -(-query.end // HOUR_MICROS) * HOUR_MICROS
    return {"from": time_of(begin), "to": time_of(max(begin, min(end, int(time.time() * MICROS))))}
