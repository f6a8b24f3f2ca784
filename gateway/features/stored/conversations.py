"""`/v1/conversations`: OpenAI's conversations, which contain the items of several responses."""

import re

import msgspec
from msgspec import Raw

from adapters.errors import CallerError, NotFound
from adapters.http1.message import Request, Response
from adapters.wire.body import open_body
from adapters.wire.responses.stored_items import Item, Page, encode, items_of, metadata_of, new_id
from gateway.auth.keys import Principal
from gateway.features.stored.exchange import conversation_of, stored
from gateway.features.stored.keeper import Keeper
from gateway.features.stored.store import Conversation, StoredTurn
from gateway.fronts import errors
from gateway.fronts.door import Door, DoorPath
from gateway.fronts.openai import require_json
from gateway.fronts.pages import query_of
from gateway.fronts.paths import CONVERSATIONS as PATH
from gateway.telemetry import Record

MOST_AT_ONCE = 20
_TARGET = re.compile(rb"/v1/conversations/([A-Za-z0-9_-]{1,128})(?:/(items)(?:/([A-Za-z0-9_-]{1,128}))?)?")
_UNKNOWN = "Unknown path. For conversations this gateway serves /v1/conversations/ID and /v1/conversations/ID/items/ID."
_NONE = "This gateway stores no conversations: send the whole conversation in `input`."


class ConversationsFront:
    """The handler of `/v1/conversations` and the paths below. Without a keeper nothing is stored."""

    def __init__(self, door: Door, keeper: Keeper | None) -> None:
        self._door = door
        self._keeper = keeper
        self._create = DoorPath("/v1/conversations", self._created)
        self._one = DoorPath("/v1/conversations/{id}", self._changed)
        self._items = DoorPath("/v1/conversations/{id}/items", self._listed)
        self._item = DoorPath("/v1/conversations/{id}/items/{item}", self._single)

    def routes(self) -> list[DoorPath]:
        """All routes."""
        return [self._create, self._one, self._items, self._item]

    async def __call__(self, http: Request) -> Response:
        """Answer one request."""
        route = self._create if http.target == PATH else None
        if (match := _TARGET.fullmatch(http.target)) is not None:
            route = self._item if match[3] else self._items if match[2] else self._one
        return await self._door.serve(http, route, _UNKNOWN, errors.openai_response)

    # ── conversations ─────────────────────────────────────────────────────────────────────────────────

    async def _created(self, principal: Principal, http: Request, record: Record) -> Response:
        keeper, fields = self._open_keeper(), await _fields(http)
        items, metadata = _items_of(fields), metadata_of(fields.get("metadata"))
        now, id_ = keeper.wall(), new_id("conv")
        made = Conversation(principal.tenant, id_, now, keeper.expires_at, encode(metadata))
        await keeper.read(lambda store: store.create(made, stored(items)))
        return self._door.respond(record, _encoded(made))

    async def _changed(self, principal: Principal, http: Request, record: Record) -> Response:
        keeper, conversation = self._open_keeper(), await self._conversation(principal, http)
        tenant, id_, now, expires_at = conversation.tenant, conversation.id, keeper.wall(), keeper.expires_at
        if http.method == "DELETE":
            await keeper.read(lambda store: store.delete_conversation(tenant, id_, now))
            return self._door.respond(record, encode({"id": id_, "object": "conversation.deleted", "deleted": True}))
        if http.method == "POST":
            metadata = encode(metadata_of((await _fields(http)).get("metadata")))
            await keeper.read(lambda store: store.set_metadata(tenant, id_, metadata, now, expires_at))
            conversation = conversation._replace(metadata=metadata)
        return self._door.respond(record, _encoded(conversation))

    # ── items ─────────────────────────────────────────────────────────────────────────────────────────

    async def _listed(self, principal: Principal, http: Request, record: Record) -> Response:
        keeper, page = self._open_keeper(), Page.of(query_of(http.query))
        if http.method != "POST":
            conversation = await self._conversation(principal, http)
            return self._door.respond(record, encode(page.of_items(await self._all(conversation))))
        items = _items_of(await _fields(http))
        conversation = await self._conversation(principal, http)
        turn = StoredTurn(conversation.tenant, None, conversation.id, stored(items), keeper.expires_at)
        await keeper.read(lambda store: store.append(turn))
        return self._door.respond(record, encode(Page(limit=MOST_AT_ONCE, ascending=True).of_items(items)))

    async def _single(self, principal: Principal, http: Request, record: Record) -> Response:
        keeper, conversation = self._open_keeper(), await self._conversation(principal, http)
        id_ = http.target.rpartition(b"/")[2].decode()
        item = next((item for item in await self._all(conversation) if item["id"] == id_), None)
        if item is None:
            raise NotFound(f"Item with id '{id_}' not found.", code="item_not_found")
        if http.method != "DELETE":
            return self._door.respond(record, encode(item))
        await keeper.read(lambda store: store.delete_item(conversation.tenant, conversation.id, id_))
        return self._door.respond(record, _encoded(conversation))

    async def _all(self, conversation: Conversation) -> list[Item]:
        keeper = self._open_keeper()
        held = await keeper.read(lambda store: store.items(conversation.tenant, conversation.id, keeper.max_bytes))
        return [msgspec.json.decode(item.item) for item in held]

    async def _conversation(self, principal: Principal, http: Request) -> Conversation:
        match, keeper = _TARGET.fullmatch(http.target), self._open_keeper()
        assert match is not None
        return await conversation_of(keeper, principal, match[1].decode())

    def _open_keeper(self) -> Keeper:
        if self._keeper is None:
            raise NotFound(_NONE, code="conversation_not_found")
        return self._keeper


async def _fields(http: Request) -> dict[str, Raw]:
    """The fields of a JSON body. An empty body is an empty object."""
    body = await http.read()
    if not body:
        return {}
    require_json(http)
    return open_body(body)


def _items_of(fields: dict[str, Raw]) -> list[Item]:
    raw = fields.get("items")
    if raw is None or bytes(raw) == b"null":
        return []
    items = items_of(raw, "items")
    if len(items) > MOST_AT_ONCE:
        raise CallerError(f"`items` takes up to {MOST_AT_ONCE} items at once.", param="items")
    return items


def _encoded(conversation: Conversation) -> bytes:
    fields = {"id": conversation.id, "object": "conversation", "created_at": int(conversation.created_at)}
    return encode({**fields, "metadata": Raw(conversation.metadata)})
