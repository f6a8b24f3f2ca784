"""One request that stores its response or continues a stored one."""

from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import msgspec
from msgspec import Raw

from adapters.errors import CallerError, NotFound
from adapters.wire.body import open_body
from adapters.wire.decoding import MALFORMED_JSON, is_id
from adapters.wire.responses.stored_items import Item, encode, items_of, with_id
from gateway.auth.keys import Principal
from gateway.features.stored.keeper import Keeper
from gateway.features.stored.references import REFERENCE, may_read, resolved
from gateway.features.stored.store import Conversation, StoredItem, StoredResponse, StoredTurn
from gateway.request.sealed_ids import joined_id, split_id
from gateway.state.refusals import refuse
from gateway.telemetry.record import PersonalAnswer


class _StorageFields(msgspec.Struct):
    store: Any = None
    previous_response_id: Any = None
    conversation: Any = None


class _Answer(msgspec.Struct):
    id: str
    output: list[Item] = []


_storage_fields = msgspec.json.Decoder(_StorageFields).decode
_answer = msgspec.json.Decoder(_Answer).decode
_items = msgspec.json.Decoder(list[Item]).decode


@dataclass(slots=True)
class StoredExchange:
    """The part of an answered request that is stored. `items` are the request's own."""

    keeper: Keeper
    principal: Principal
    stores: bool
    previous: str | None
    conversation: str | None
    items: list[Item] = field(repr=False)
    sealed: str = ""
    """What the id of the previous response has beside the id: its personal data, sealed."""
    model: str = ""
    """The model by the name that the client requests, once it is known."""

    @property
    def repeated(self) -> dict[str, Any]:
        """The fields of the answer that report how it is stored."""
        conversation = None if self.conversation is None else {"id": self.conversation}
        previous = None if self.previous is None else joined_id(self.previous, self.sealed)
        fields = {"store": self.stores, "previous_response_id": previous}
        return fields if conversation is None else {**fields, "conversation": conversation}

    def dropped(self) -> "StoredExchange":
        """The exchange on a route that drops `store`."""
        return replace(self, stores=False)

    def hidden(self, personal: PersonalAnswer) -> "StoredExchange":
        """The exchange without personal data."""
        items: list[Item] = _items(personal.hidden(encode(self.items)))
        return replace(self, items=items, sealed="")

    async def finish(self, answer: bytes) -> None:
        """Store a whole Response, which is JSON."""
        if not self.stores and self.conversation is None:
            return
        keeper, tenant = self.keeper, self.principal.tenant
        try:
            decoded = _answer(answer)
        except MALFORMED_JSON as error:  # of a server; its client has the answer
            refuse("stored responses", f"an answer for {tenant}", error)
            return
        response, added = None, tuple[StoredItem, ...]()
        if self.stores:
            now, given = keeper.wall(), encode(self.items)
            response = StoredResponse(
                tenant, decoded.id, now, keeper.expires_at, self.previous, given, answer, self.model
            )
        if self.conversation is not None:
            added = stored([*self.items, *decoded.output])
        await keeper.keep(StoredTurn(tenant, response, self.conversation, added, keeper.expires_at, self.model))


def stored(items: list[Item]) -> tuple[StoredItem, ...]:
    """Items in the form of the database."""
    return tuple([StoredItem(item["id"], encode(item)) for item in map(with_id, items)])


async def opened(keeper: Keeper, principal: Principal, body: bytes) -> tuple[bytes, StoredExchange | None]:
    """The body with the stored items before its own, in the place of its references, and without the fields about
    storage; None if the request neither stores nor continues a response. Raises `InferenceError`."""
    try:
        storage = _storage_fields(body)
    except MALFORMED_JSON:
        return body, None  # refused where it is decoded
    stores = storage.store is True or (storage.store is None and keeper.config.store == "default")
    previous = storage.previous_response_id if isinstance(storage.previous_response_id, str) else None
    previous, sealed = (previous, "") if previous is None else split_id(previous)
    conversation = storage.conversation
    if isinstance(conversation, dict) and conversation.keys() == {"id"}:
        conversation = conversation["id"]
    conversation = conversation if isinstance(conversation, str) else None
    is_own = stores or previous is not None or conversation is not None
    if not is_own and REFERENCE not in body:
        return body, None
    if previous is not None and conversation is not None:
        message = "Give either `previous_response_id` or `conversation`."
        raise CallerError(message, param="previous_response_id")
    for name, id_ in (("previous_response_id", previous), ("conversation", conversation)):
        if id_ is not None and not is_id(id_):
            raise CallerError(f"`{name}` is not an id.", param=name)
    await keeper.require_room(principal.tenant, len(body) if stores or conversation is not None else 0)
    fields = open_body(body)
    given = items_of(fields.get("input"))
    items = await resolved(keeper, principal, given)
    exchange = StoredExchange(keeper, principal, stores, previous, conversation, items, sealed)
    history = await _history(exchange)
    if history or items is not given:
        fields["input"] = Raw(encode([*history, *items]))
    removed = {"store"} if stores else set[str]()
    removed |= {"previous_response_id"} if previous is not None else set()
    removed |= {"conversation"} if conversation is not None else set()
    body = encode({name: raw for name, raw in fields.items() if name not in removed})
    return body, exchange if is_own else None


async def _history(exchange: StoredExchange) -> list[Item]:
    """The items before the request's own."""
    keeper, principal, now = exchange.keeper, exchange.principal, exchange.keeper.wall()
    tenant = principal.tenant
    if (previous := exchange.previous) is not None:
        pending = partial(keeper.pending, tenant)
        turns = await keeper.read(lambda store: store.history(tenant, previous, now, pending, keeper.max_bytes))
        if turns is None or not all(may_read(principal, turn.model) for turn in turns):
            message = f"Previous response with id '{previous[:128]}' not found."
            raise CallerError(message, code="previous_response_not_found", param="previous_response_id")
        return [item for turn in turns for item in (*_items(turn.input), *_answer(turn.answer).output)]
    if (conversation := exchange.conversation) is not None:
        await conversation_of(keeper, principal, conversation)
        held = await keeper.read(lambda store: store.items(tenant, conversation, keeper.max_bytes))
        return [msgspec.json.decode(item.item) for item in held]
    return []


async def conversation_of(keeper: Keeper, principal: Principal, id_: str) -> Conversation:
    """A conversation that a principal may read. Raises `NotFound`."""
    tenant, now = principal.tenant, keeper.wall()
    conversation = await keeper.read(lambda store: store.conversation(tenant, id_, now))
    if conversation is not None and principal.scope is not None and principal.scope.restricts_models:
        models = await keeper.read(lambda store: store.models(tenant, id_))
        conversation = conversation if all(may_read(principal, model) for model in models) else None
    if conversation is None:
        raise no_conversation(id_)
    return conversation


def no_conversation(id_: str) -> NotFound:
    return NotFound(f"Conversation with id '{id_[:128]}' not found.", code="conversation_not_found")
