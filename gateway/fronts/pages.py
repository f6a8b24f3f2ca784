"""Pages of lists."""

from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qsl

from adapters.errors import CallerError, NotFound
from adapters.wire.decoding import LONGEST_ID, is_id, whole_number

DEFAULT = 20


def query_of(text: str) -> dict[str, str]:
    """The parameters of a URL, each of which may be an id in a database. Raises `CallerError`."""
    query = dict(parse_qsl(text))
    for name, value in query.items():
        if not is_id(value):
            message = f"`{name[:64]}` has at most {LONGEST_ID} characters, which are printable."
            raise CallerError(message, param=name[:64], code="invalid_query")
    return query


def limit_of(query: Mapping[str, str], most: int, default: int = DEFAULT) -> int:
    """The length of a page. Raises `CallerError`."""
    if (limit := whole_number(query.get("limit", str(default)), 1, most)) is None:
        raise CallerError(f"`limit` is a whole number from 1 to {most}.", param="limit")
    return limit


def is_ascending(query: Mapping[str, str]) -> bool:
    """Whether a list begins with the oldest item. Raises `CallerError`."""
    order = query.get("order", "desc")
    if order not in ("asc", "desc"):
        raise CallerError("`order` is asc or desc.", param="order")
    return order == "asc"


def page_of(items: list[dict[str, Any]] | None, limit: int, after: str | None, **fields: Any) -> dict[str, Any]:
    """A page of up to `limit` of the items, which are one more if another page follows. Raises `NotFound`."""
    if items is None:
        raise NotFound(f"There is no item `{(after or '')[:128]}`.", param="after", code="not_found")
    shown = items[:limit]
    first, last = (shown[0]["id"], shown[-1]["id"]) if shown else (None, None)
    return {**fields, "data": shown, "first_id": first, "last_id": last, "has_more": len(items) > limit}
