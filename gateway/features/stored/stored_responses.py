"""`/v1/responses/ID`: reads and deletes stored responses."""

import asyncio
import re
from functools import partial

import msgspec

from adapters.errors import CallerError, NotFound
from adapters.http1.message import Request, Response
from adapters.wire.responses.stored_items import Item, Page, encode
from gateway.auth.keys import Principal
from gateway.features.stored.exchange import StoredExchange, opened
from gateway.features.stored.keeper import Keeper
from gateway.features.stored.references import may_read
from gateway.features.stored.store import ResponseDatabase, StoredResponse
from gateway.fronts.door import Door, DoorPath
from gateway.fronts.pages import query_of
from gateway.request.sealed_ids import split_id
from gateway.telemetry import Record

_PATH = re.compile(rb"/v1/responses/([A-Za-z0-9_-]{1,4096})(?:/(input_items|cancel))?")
_NONE = "This gateway stores no responses: send the whole conversation in `input`."
_items = msgspec.json.Decoder(list[Item]).decode


class StoredResponses:
    """The storage of responses as their front uses it. Without a keeper nothing is stored."""

    def __init__(self, door: Door, keeper: Keeper | None) -> None:
        self._door = door
        self._keeper = keeper
        self._one = DoorPath("/v1/responses/{id}", self._answer)
        self._input = DoorPath("/v1/responses/{id}/input_items", self._input_items)
        self._cancel = DoorPath("/v1/responses/{id}/cancel", self._cancelled)
        self._other = DoorPath("/v1/responses/{path}", self._unknown)

    async def opened(self, principal: Principal, body: bytes) -> tuple[bytes, StoredExchange | None]:
        """The body with the stored items before its own, and what is stored of it. Raises `InferenceError`."""
        return (body, None) if self._keeper is None else await opened(self._keeper, principal, body)

    def routes(self) -> list[DoorPath]:
        """All routes."""
        return [self._one, self._input, self._cancel, self._other]

    def route(self, target: bytes) -> DoorPath:
        """The route of a path below `/v1/responses`."""
        match = _PATH.fullmatch(target)
        if match is None or self._keeper is None:
            return self._other
        return {None: self._one, b"input_items": self._input}.get(match[2], self._cancel)

    async def _answer(self, principal: Principal, http: Request, record: Record) -> Response:
        if http.method == "DELETE":
            return await self._delete(principal, http, record)
        query = query_of(http.query)
        if query.get("stream", "false").lower() not in ("false", "0"):
            raise CallerError("A stored response has no stream: leave out `stream`.", param="stream")
        return self._door.respond(
            record, await self._restored(principal, http, (await self._stored(principal, http)).answer)
        )

    async def _delete(self, principal: Principal, http: Request, record: Record) -> Response:
        stored, keeper = await self._stored(principal, http), self._keeper
        assert keeper is not None
        await keeper.forget(stored)
        deleted = {"id": stored.id, "object": "response", "deleted": True}
        return self._door.respond(record, encode(deleted))

    async def _input_items(self, principal: Principal, http: Request, record: Record) -> Response:
        page = Page.of(query_of(http.query))
        stored = await self._stored(principal, http)
        return self._door.respond(
            record, await self._restored(principal, http, encode(page.of_items(_items(stored.input))))
        )

    async def _restored(self, principal: Principal, http: Request, body: bytes) -> bytes:
        """What is stored, with the personal data in the id of the response, and with this id."""
        match = _PATH.fullmatch(http.target)
        assert match is not None
        id_, sealed = split_id(match[1].decode())
        if not sealed:
            return body
        body = await asyncio.to_thread(self._door.core.snapshot.restored, principal.tenant, id_, sealed, body)
        return body.replace(f'"{id_}"'.encode(), b'"%b"' % match[1])

    async def _cancelled(self, principal: Principal, http: Request, record: Record) -> Response:
        await self._stored(principal, http)
        raise CallerError("Only a response with `background: true` can be cancelled, and there are none here.")

    async def _unknown(self, principal: Principal, http: Request, record: Record) -> Response:
        raise NotFound(_NONE if self._keeper is None else "Unknown path.", code="response_not_found")

    async def _stored(self, principal: Principal, http: Request) -> StoredResponse:
        match, keeper = _PATH.fullmatch(http.target), self._keeper
        assert match is not None
        assert keeper is not None
        tenant, id_ = principal.tenant, split_id(match[1].decode())[0]
        stored = keeper.pending(tenant, id_)
        if stored is None:
            stored = await keeper.read(partial(_read, tenant, id_, keeper.wall()))
        if stored is None or not may_read(principal, stored.model):
            raise NotFound(f"Response with id '{id_}' not found.", code="response_not_found")
        return stored


def _read(tenant: str, id_: str, now: float, store: ResponseDatabase) -> StoredResponse | None:
    return store.response(tenant, id_, now)
