"""References to stored items: clients send the id of an item that an earlier answer had, instead of the item."""

from collections.abc import Iterator

import msgspec

from adapters.errors import CallerError
from adapters.wire.decoding import MALFORMED_JSON
from adapters.wire.responses.answers import response_of
from adapters.wire.responses.stored_items import Item
from gateway.auth.keys import Principal
from gateway.features.stored.keeper import Keeper
from gateway.features.stored.store import StoredResponse

REFERENCE = b"item_reference"
"""The type of a reference, which is in each body that has one."""


class _Answer(msgspec.Struct):
    output: list[Item] = []


_items = msgspec.json.Decoder(list[Item]).decode
_answer = msgspec.json.Decoder(_Answer).decode


async def resolved(keeper: Keeper, principal: Principal, items: list[Item]) -> list[Item]:
    """The items with the stored ones in the place of references; the same list without any. Raises `CallerError` for an
    item that the principal has not stored."""
    places = {str(item.get("id")): index for index, item in enumerate(items) if _is_reference(item)}
    if not places:
        return items
    tenant, now = principal.tenant, keeper.wall()
    named = {id_: response_of(id_) for id_ in places}
    pending = [one for id_ in set(named.values()) if id_ and (one := keeper.pending(tenant, id_)) is not None]
    stored = await keeper.read(lambda store: store.with_items(tenant, named, now, keeper.max_bytes))
    items_by_id: dict[str, Item] = {}
    for response in (*pending, *stored):
        if may_read(principal, response.model):
            items_by_id |= {item["id"]: item for item in _items_of(response) if item.get("id") in places}
    if missing := places.keys() - items_by_id.keys():
        id_ = min(missing, key=places.__getitem__)
        message = (
            f"`input[{places[id_]}]` refers to the item {id_[:128]!r}, which is not stored. Store responses "
            "(`store: true`), or set `store: false` at the client, which then sends its items in full."
        )
        raise CallerError(message, param=f"input[{places[id_]}]", code="item_not_found")
    return [items_by_id[item["id"]] if _is_reference(item) else item for item in items]


def may_read(principal: Principal, model: str) -> bool:
    """Whether a principal may read what a model has answered: one with a scope of models, what these have answered."""
    return principal.scope is None or principal.scope.allows_model(model)


def _is_reference(item: Item) -> bool:
    return item.get("type") == "item_reference"


def _items_of(response: StoredResponse) -> Iterator[Item]:
    try:
        yield from _items(response.input)
        yield from _answer(response.answer).output
    except MALFORMED_JSON:  # of a server, which wrote the answer
        return
