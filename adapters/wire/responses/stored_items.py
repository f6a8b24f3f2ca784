"""Items of stored responses and conversations: decodes an input into items with ids, and pages lists of them."""

import secrets
from typing import Any, NamedTuple

import msgspec
from msgspec import Raw

from adapters.errors import CallerError, NotFound
from adapters.wire import decoding
from adapters.wire.decoding import is_id, whole_number

MAX_PAGE = 100
DEFAULT_PAGE = 20
MAX_METADATA = 16
LONGEST_ITEM_ID = 128
_PREFIXES = {
    "function_call": "fc",
    "function_call_output": "fco",
    "message": "msg",
    "reasoning": "rs",
}

Item = dict[str, Any]

_encode = msgspec.json.Encoder().encode
_input = msgspec.json.Decoder(str | list[Item])
_metadata = msgspec.json.Decoder(dict[str, str] | None)


def new_id(prefix: str) -> str:
    """A random id."""
    return f"{prefix}_{secrets.token_hex(24)}"


def items_of(raw: Raw | None, param: str = "input") -> list[Item]:
    """Decode an input into items, each with an id. Raises `CallerError`."""
    if raw is None:
        return []
    try:
        given = _input.decode(raw)
    except decoding.MALFORMED_JSON as error:
        raise CallerError(f"`{param}` is not valid: {error}.", param=param) from None
    if isinstance(given, str):
        given = [{"role": "user", "content": given}]
    return [_complete(item) for item in given]


def _complete(item: Item) -> Item:
    kind = item.get("type") or "message"
    item = with_id({**item, "type": kind})
    if kind == "message":
        item.setdefault("status", "completed")
        if isinstance(item.get("content"), str):
            type_ = "output_text" if item.get("role") == "assistant" else "input_text"
            part: Item = {"type": type_, "text": item["content"]}
            item["content"] = [part | ({"annotations": []} if type_ == "output_text" else {})]
    return item


def with_id(item: Item) -> Item:
    """The item with an id that a database can store: its own one, or a random one."""
    id_, kind = item.get("id"), item.get("type")
    if isinstance(id_, str) and len(id_) <= LONGEST_ITEM_ID and is_id(id_):
        return item
    return {**item, "id": new_id(_PREFIXES.get(kind, "item") if isinstance(kind, str) else "item")}


def encode(value: Any) -> bytes:
    """Encode JSON."""
    return _encode(value)


def metadata_of(raw: Raw | None) -> dict[str, str]:
    """Decode metadata of up to 16 texts. Raises `CallerError`."""
    try:
        metadata = _metadata.decode(raw) if raw is not None else None
    except decoding.MALFORMED_JSON as error:
        raise CallerError(f"`metadata` is not valid: {error}.", param="metadata") from None
    metadata = metadata or {}
    if len(metadata) > MAX_METADATA or any(len(name) > 64 or len(value) > 512 for name, value in metadata.items()):
        raise CallerError("`metadata` takes up to 16 texts of 512 characters, with names of 64.", param="metadata")
    return metadata


class Page(NamedTuple):
    """A client's request for a page of a list."""

    limit: int = DEFAULT_PAGE
    ascending: bool = False
    after: str | None = None

    @classmethod
    def of(cls, query: dict[str, str]) -> "Page":
        """Raises `CallerError`."""
        limit, order = whole_number(query.get("limit", str(DEFAULT_PAGE)), 1, MAX_PAGE), query.get("order", "desc")
        if limit is None:
            raise CallerError(f"`limit` is a whole number from 1 to {MAX_PAGE}.", param="limit")
        if order not in ("asc", "desc"):
            raise CallerError("`order` is asc or desc.", param="order")
        return cls(limit, order == "asc", query.get("after"))

    def of_items(self, items: list[Item]) -> dict[str, Any]:
        """A page of items, given oldest first. Raises `NotFound` for an unknown `after`."""
        ordered = items if self.ascending else items[::-1]
        begin = 0
        if self.after is not None:
            begin = next((i + 1 for i, item in enumerate(ordered) if item["id"] == self.after), 0)
            if not begin:
                raise NotFound(f"There is no item `{self.after[:128]}`.", param="after")
        shown = ordered[begin : begin + self.limit]
        first, last = (shown[0]["id"], shown[-1]["id"]) if shown else (None, None)
        more = begin + self.limit < len(ordered)
        return {"object": "list", "data": shown, "first_id": first, "last_id": last, "has_more": more}
