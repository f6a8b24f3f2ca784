"""What several workers tell of themselves, as the state of one gateway."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from config.schema.money import Money, parse_amount

Values = Sequence[Any]
Way = Callable[[Values], Any]


def _worst(*order: str) -> Way:
    """The one that comes first in `order`; others after those."""
    return lambda values: min(values, key=lambda value: order.index(value) if value in order else len(order))


def _most(values: Values) -> Any:
    return max((value for value in values if value is not None), default=None)


def _least(values: Values) -> Any:
    return min((value for value in values if value is not None), default=None)


def _money(values: Values) -> Any:
    amounts = [parse_amount(value) for value in values]
    return str(Money(sum(amount.picos for amount in amounts), amounts[0].currency))


def _total(values: Values) -> Any:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


WAYS: Mapping[str, Way] = {
    "accepting": any,
    "available": all,
    "up": all,
    "limits": lambda values: values[0],
    "health": _worst("unhealthy", "unknown", "healthy"),
    "breaker": _worst("open", "half_open", "closed"),
    "remaining": _least,
    "subjects": _most,
    "age_seconds": _most,
    "keys": _least,
    "weight": _least,
    "amount": _money,
    "served_per_second": _total,
    "discovery": _most,
}
"""Of a field, and of all that stands in it. Other numbers are summed, and of other values one that says something
is taken."""
NAMES = ("pool", "endpoint", "tenant", "model", "issuer", "key", "name", "arm", "id")
"""Fields that tell which entries of two lists are the same one."""


def merged(views: Values, way: Way | None = None) -> Any:
    """One value out of each worker's."""
    if all(isinstance(view, dict) for view in views):
        fields = dict.fromkeys(field for view in views for field in view)
        return {f: merged([view[f] for view in views if f in view], WAYS.get(f, way)) for f in fields}
    if all(isinstance(view, list) for view in views):
        return _lists(views, way)
    if way is not None:
        return way(views)
    if all(isinstance(view, int | float) and not isinstance(view, bool) for view in views):
        return sum(views)
    return next((view for view in views if view), views[0])


def spent(views: Values) -> list[Any]:
    """Of the tenants of states only what they have spent, which outlives the workers that counted it."""
    told = [[{"tenant": tenant["tenant"], "spent": tenant["spent"]} for tenant in view] for view in views]
    return list(merged(told)) if told else []


def _lists(views: Values, way: Way | None) -> list[Any]:
    """Entries of the same name, or without names of the same position, as one."""
    entries: dict[object, list[Any]] = {}
    for view in views:
        for position, entry in enumerate(view):
            entries.setdefault(_name(entry) or position, []).append(entry)
    return [merged(same, way) if isinstance(same[0], dict) else same[0] for same in entries.values()]


def _name(entry: Any) -> tuple[Any, ...]:
    if not isinstance(entry, dict):
        return (entry,)
    return tuple((name, entry[name]) for name in NAMES if isinstance(entry.get(name), str))
