"""JSON values, field by field."""

import re
from collections.abc import Sequence
from typing import Any

from config.schema.copies import JsonComparisonConfig

MOST_FIELDS = 16
"""Differing fields that are named."""
_STEP = re.compile(r"\.([A-Za-z_][A-Za-z0-9_-]*)|\[(\*|\d+)\]")
_Place = tuple[str | int, ...]


def differing_fields(first: Any, second: Any, config: JsonComparisonConfig) -> dict[str, str]:
    """The paths at which two JSON values differ, with the difference. A path that is ignored covers all below it."""
    ignored = [_steps(path) for path in config.ignore]
    differing: dict[str, str] = {}
    waiting: list[tuple[Any, Any, _Place]] = [(first, second, ())]
    while waiting and len(differing) < MOST_FIELDS:
        one, other, place = waiting.pop()
        if any(_covers(path, place) for path in ignored):
            continue
        if isinstance(one, dict) and isinstance(other, dict):
            names = [*one, *(name for name in other if name not in one)]
            waiting += [(one.get(name, _ABSENT), other.get(name, _ABSENT), (*place, name)) for name in reversed(names)]
        elif isinstance(one, list) and isinstance(other, list):
            length = max(len(one), len(other))
            waiting += [(_item(one, i), _item(other, i), (*place, i)) for i in reversed(range(length))]
        elif difference := _difference(one, other, config):
            differing[_written(place)] = difference
    return differing


class _Absent:
    """The value of a field that only the other object has."""


_ABSENT = _Absent()


def _item(items: Sequence[Any], index: int) -> Any:
    return items[index] if index < len(items) else _ABSENT


def _difference(one: Any, other: Any, config: JsonComparisonConfig) -> str:
    if one is _ABSENT or other is _ABSENT:
        return "only the shadow has it" if one is _ABSENT else "the shadow does not have it"
    if _is_number(one) and _is_number(other):
        return "" if abs(one - other) <= config.atol + config.rtol * abs(one) else "another number"
    if type(one) is not type(other):
        return "a value of another type"
    return "" if one == other else "another value"


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _steps(path: str) -> _Place:
    """The steps of a path. ``*`` stands for each item."""
    return tuple(name or (item if item == "*" else int(item)) for name, item in _STEP.findall(path))


def _covers(path: _Place, place: _Place) -> bool:
    return len(path) == len(place) and all(step in ("*", part) for step, part in zip(path, place, strict=True))


def _written(place: _Place) -> str:
    """The path as text, with ``[*]`` for positions: one field of all items is one field."""
    return "$" + "".join("[*]" if isinstance(step, int) else f".{step[:64]}" for step in place[:16])
