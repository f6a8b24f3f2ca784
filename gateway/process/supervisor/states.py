"""Merges the states of several workers into the state of one gateway."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from config.schema.money import Money, parse_amount

Values = Sequence[Any]
Merge = Callable[[Values], Any]


def _worst(*order: str) -> Merge:
    """The value that comes first in `order`; values not in it come last."""
    return lambda values: min(values, key=lambda value: order.index(value) if value in order else len(order))


def _most(values: Values) -> Any:
    return max((value for value in values if value is not None), default=None)


def _least(values: Values) -> Any:
    return min((value for value in values if value is not None), default=None)


def _money(values: Values) -> Any:
    amounts = [parse_amount(value) for value in values]
    return str(Money(sum(amount.picos for amount in amounts), amounts[0].currency))


def _total(values: Values) -> Any:
    present = [value for value in values if value is not None]
    return sum(present) if present else None


MERGES: Mapping[str, Merge] = {
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
    "replica": lambda values: values[0],
    "rest_seconds": _most,  # all workers read the same accounts
    "reserved": _most,
    "quotas": _least,
}
"""The merge of a field and all fields in it. Other numbers are summed, else the first non-empty value is used."""
NAMES = ("pool", "endpoint", "tenant", "team", "model", "issuer", "key", "name", "arm", "id")
"""Fields that identify an entry of a list."""


def merged(views: Values, merge: Merge | None = None) -> Any:
    """Merge the workers' values into one."""
    if all(isinstance(view, dict) for view in views):
        fields = dict.fromkeys(field for view in views for field in view)
        return {f: merged([view[f] for view in views if f in view], MERGES.get(f, merge)) for f in fields}
    if all(isinstance(view, list) for view in views):
        return _lists(views, merge)
    if merge is not None:
        return merge(views)
    if all(isinstance(view, int | float) and not isinstance(view, bool) for view in views):
        return sum(views)
    return next((view for view in views if view), views[0])


def spent(views: Values) -> list[Any]:
    """The spend of the tenants of several states, which outlives the workers that counted it."""
    amounts = [[{"tenant": tenant["tenant"], "spent": tenant["spent"]} for tenant in view] for view in views]
    return list(merged(amounts)) if amounts else []


def _lists(views: Values, merge: Merge | None) -> list[Any]:
    """Merge entries of the same name, or of the same position if they have no name."""
    entries: dict[object, list[Any]] = {}
    for view in views:
        for position, entry in enumerate(view):
            entries.setdefault(_name(entry) or position, []).append(entry)
    return [merged(same, merge) if isinstance(same[0], dict) else same[0] for same in entries.values()]


def _name(entry: Any) -> tuple[Any, ...]:
    if not isinstance(entry, dict):
        return (entry,)
    return tuple((name, entry[name]) for name in NAMES if isinstance(entry.get(name), str))
