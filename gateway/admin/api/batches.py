"""`/admin/batches`: the batches of tenants, their progress, and their cancellation."""

from collections.abc import Callable
from typing import TypeVar

from aiohttp import web

from adapters.errors import CapacityError
from adapters.wire.decoding import whole_number
from gateway.admin.api.backend import AdminBackend
from gateway.admin.api.body import query_parameters
from gateway.admin.api.guard import AdminRefused, acted, visit
from gateway.features.batches.listing import (
    MOST_ROWS,
    STATES,
    BatchSearch,
    cancel,
    described,
    failures_file,
    failures_of,
    one_of,
    page_of,
    reasons_of,
    summary,
)
from gateway.features.batches.rows import file_object
from gateway.features.batches.service import BatchService
from gateway.features.batches.storage import NoObject, Storage
from gateway.features.batches.store import BatchStore
from policies.batches.states import may_cancel

T = TypeVar("T")
_PARAMETERS = ("tenant", "status", "after", "limit")
PIECE = 64 * 1024
_LONGEST = 128
"""Characters of an id or of a tenant's name."""


class AdminBatches:
    """The handlers. A tenant-admin sees the batches of its own tenant: those of others do not exist for it."""

    def __init__(self, backend: AdminBackend) -> None:
        self._backend = backend

    def routes(self) -> list[web.RouteDef]:
        """All routes."""
        return [
            web.get("/admin/batches", self._list),
            web.get("/admin/batches/{id}", self._show),
            web.get("/admin/batches/{id}/failures", self._failures),
            web.post("/admin/batches/{id}/cancel", self._cancel),
        ]

    async def _list(self, request: web.Request) -> web.Response:
        search = _search(query_parameters(request, _PARAMETERS), visit(request).within)
        page = await self._query(lambda store: page_of(store, search))
        if page is None:
            raise AdminRefused(400, "bad_query", "`after` must be the `next` of the page before", param="after")
        following = page[-1].spec.id if len(page) == search.limit else None
        return web.json_response({"batches": [summary(batch) for batch in page], "next": following})

    async def _show(self, request: web.Request) -> web.Response:
        id_, within = request.match_info["id"], visit(request).within
        batch = await self._query(lambda store: one_of(store, id_, within))
        if batch is None:
            raise _no_batch()
        waits = await self._query(lambda store: reasons_of(store, batch))
        made = described(batch, [*waits, *self._service().waits(batch.spec.id)])
        if file := failures_file(batch):
            made["failures"] = await self._stored(lambda storage: failures_of(storage, file))
        return web.json_response(made)

    async def _failures(self, request: web.Request) -> web.StreamResponse:
        """The whole file with the failed lines. Those with personal data that a guard has masked are sealed: only the
        client of the batch can read them."""
        id_, within = request.match_info["id"], visit(request).within
        batch = await self._query(lambda store: one_of(store, id_, within))
        file = None if batch is None else failures_file(batch)
        if file is None or (batch is not None and batch.spec.api == "anthropic"):
            raise AdminRefused(404, "no_such_file", "this batch has no file of failed lines")
        name, at = file_object(file), 0
        piece = await self._stored(lambda storage: _piece(storage, name, 0))
        headers = {"Content-Type": "application/jsonl", "Content-Disposition": 'attachment; filename="failures.jsonl"'}
        response = web.StreamResponse(headers=headers)
        await response.prepare(request)
        while piece:
            await response.write(piece)
            at += len(piece)
            piece = await self._stored(lambda storage, at=at: _piece(storage, name, at))  # type: ignore[misc]
        return response

    async def _cancel(self, request: web.Request) -> web.Response:
        id_, within = request.match_info["id"], visit(request).within
        acted(request, "batch.cancel", id_[:_LONGEST])
        service = self._service()
        batch = await self._query(lambda store: cancel(store, id_, within, service.wall()))
        if batch is None:
            raise _no_batch()
        if not may_cancel(batch.progress.status):
            raise AdminRefused(409, "batch_ended", f"a batch that is {batch.progress.status} cannot be cancelled")
        service.created()
        return web.json_response(described(batch))

    async def _stored(self, use: Callable[[Storage], T]) -> T:
        try:
            return await self._service().stored(use)
        except CapacityError as error:
            raise AdminRefused(503, error.code, error.message) from None

    async def _query(self, query: Callable[[BatchStore], T]) -> T:
        try:
            return await self._service().query(query)
        except CapacityError as error:
            raise AdminRefused(503, error.code, error.message) from None

    def _service(self) -> BatchService:
        service = self._backend.batches
        if service is None:
            raise AdminRefused(404, "batches_disabled", "the configuration has no section `batches`")
        return service


def _piece(storage: Storage, name: str, at: int) -> bytes:
    try:
        return storage.read(name, at, PIECE)
    except NoObject:
        return b""


def _search(texts: dict[str, str], within: str | None) -> BatchSearch:
    """A search of a URL's parameters. Raises `AdminRefused`."""
    for name in ("tenant", "after"):
        if len(texts.get(name, "")) > _LONGEST:
            raise AdminRefused(400, "bad_query", f"`{name}` must have at most {_LONGEST} characters", param=name)
    tenant, state = texts.get("tenant", within), texts.get("status")
    limit = whole_number(texts.get("limit", "50"), 1, MOST_ROWS)
    if within is not None and tenant != within:
        raise AdminRefused(403, "bad_query", f"this key may read the batches of {within} alone", param="tenant")
    if state is not None and state not in STATES:
        raise AdminRefused(400, "bad_query", f"`status` must be one of {', '.join(STATES)}", param="status")
    if limit is None:
        raise AdminRefused(400, "bad_query", f"`limit` must be a number from 1 to {MOST_ROWS}", param="limit")
    return BatchSearch(tenant, state, texts.get("after"), limit)


def _no_batch() -> AdminRefused:
    return AdminRefused(404, "no_such_batch", "no batch has this id")
