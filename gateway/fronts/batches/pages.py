"""Pages of lists."""

from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qsl

from adapters.errors import CallerError, NotFound

DEFAULT = 20


def query_of(text: str) -> dict[str, str]:
    """The parameters of a URL."""
    return dict(parse_qsl(text))


def limit_of(query: Mapping[str, str], most: int, default: int = DEFAULT) -> int:
    """The length of a page. Raises `CallerError`."""
    limit = query.get("limit", str(default))
    if not (limit.isascii() and limit.isdigit() and len(limit) < 6 and 1 <= int(limit) <= most):
        raise CallerError(f"`limit` is a whole number from 1 to {most}.", param="limit")
    return int(limit)


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
