"""The differences of two answers under a configuration: of texts, tensors, tool calls and the fields of JSON values."""

import re
from collections.abc import Sequence
from typing import Any

import msgspec

from config.schema.config import CompareConfig
from config.schema.copies import JsonComparisonConfig
from policies.comparison.answers import AnswerContent, ComparedTool
from policies.comparison.tensors import tensor_differences
from policies.comparison.text import accepts

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


def tool_difference(first: Sequence[ComparedTool], second: Sequence[ComparedTool]) -> str:
    """The difference of the calls of two answers, in their order; empty if they agree."""
    if len(first) != len(second):
        return f"{len(first)} and {len(second)} calls"
    for one, other in zip(first, second, strict=True):
        if one.name != other.name:
            return f"{one.name[:64]} and {other.name[:64]}"
        if _arguments(one) != _arguments(other):
            return f"the arguments of {one.name[:64]}"
    return ""


def _arguments(call: ComparedTool) -> Any:
    """The arguments as a JSON value, so that neither white space nor the order of names counts."""
    try:
        return msgspec.json.decode(call.arguments)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return call.arguments


Differences = dict[str, str]
"""By the part that differs (``status``, ``text``, ``tools``, ``bytes``, a tensor's name, a path): the difference."""


def differences(first: AnswerContent, second: AnswerContent, config: CompareConfig) -> Differences:
    """The differences of the shadow's answer from the primary's, `first`; empty if they agree."""
    if first.status // 100 != second.status // 100:
        return {"status": f"{first.status} and {second.status}"}
    if first.status >= 400:
        return {}  # the texts of errors are not answers
    if config.exact or "bytes" in (first.kind, second.kind):
        return {} if first.body == second.body else {"bytes": f"{len(first.body)} and {len(second.body)} bytes"}
    if first.kind != second.kind:
        return {"kind": f"{first.kind} and {second.kind}"}
    if first.kind == "tensors":
        return _of_tensors(first, second, config)
    if first.kind == "json":
        return differing_fields(first.value, second.value, config.json_)
    return _of_texts(first, second, config)


def undecided_texts(first: AnswerContent, second: AnswerContent, config: CompareConfig) -> tuple[tuple[str, str], ...]:
    """The texts that no test of the texts alone accepts, if a model has to decide them."""
    if not any(test.model for test in config.text) or len(first.texts) != len(second.texts):
        return ()
    pairs = zip(first.texts, second.texts, strict=True)
    return tuple((one, other) for one, other in pairs if not any(accepts(test, one, other) for test in config.text))


def _of_tensors(first: AnswerContent, second: AnswerContent, config: CompareConfig) -> Differences:
    """Tensors, or the JSON of a wire whose tensors have no datatype."""
    differing = tensor_differences(first.tensors, second.tensors, config.tensors)
    if first.value is not None or second.value is not None:
        tolerances = JsonComparisonConfig(rtol=config.tensors.rtol, atol=config.tensors.atol)
        differing |= differing_fields(first.value, second.value, tolerances)
    return differing


def _of_texts(first: AnswerContent, second: AnswerContent, config: CompareConfig) -> Differences:
    differing: Differences = {}
    if len(first.texts) != len(second.texts):
        differing["text"] = f"{len(first.texts)} and {len(second.texts)} choices"
    elif not all(
        any(accepts(test, one, other) for test in config.text)
        for one, other in zip(first.texts, second.texts, strict=True)
    ):
        differing["text"] = "no test accepts the texts"
    if config.tools and (difference := tool_difference(first.tools, second.tools)):
        differing["tools"] = difference
    return differing
