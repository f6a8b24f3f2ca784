"""JSON Schema of draft 2020-12 whose validation ends: patterns in linear time, and a bound on all of the work.

An answer can be made so that a validator without a bound never ends: by a pattern that backtracks, by entries that are
compared each with each, by recursive schemas with alternatives.
"""

import copy
import json
import time
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from functools import lru_cache
from math import inf
from typing import Any

from jsonschema import Draft202012Validator, ValidationError
from jsonschema.validators import extend
from referencing import Registry

from config.answer_schemas import schemas_of
from config.patterns import Search, compiled

Errors = Iterator[ValidationError]
Keyword = Callable[[Any, Any, Any, Any], Errors | None]


class TooMuchWorkError(Exception):
    """A validation has used all of its steps, or all of its time."""


class _Work:
    """What is left for one validation."""

    def __init__(self, steps: float, ends: float) -> None:
        self.steps = steps
        self.ends = ends

    def step(self) -> None:
        """Note that a keyword is applied. Raises `TooMuchWorkError`."""
        self.steps -= 1
        if self.steps < 0 or time.monotonic() >= self.ends:
            raise TooMuchWorkError


_WORK: ContextVar[_Work] = ContextVar("_WORK", default=_Work(inf, inf))  # noqa: B039 - the default never changes


class BoundedSchema:
    """A schema, compiled. References lead only into it, and to the schemas of JSON Schema itself."""

    def __init__(self, schema: dict[str, Any]) -> None:
        """The schema has passed `config.answer_schemas.faults_of`."""
        own = copy.deepcopy(schema)
        for _, each in schemas_of(own):
            if isinstance(each.get("$schema"), str):
                del each["$schema"]  # it would lead to a validator without these bounds
        self._validator = _VALIDATOR(own, registry=Registry())

    def allows(self, value: Any, *, steps: float = inf, seconds: float = inf) -> bool:
        """Whether the schema allows a value of JSON. Raises `TooMuchWorkError` and `Unresolvable`."""
        token = _WORK.set(_Work(steps, time.monotonic() + seconds))
        try:
            return bool(self._validator.is_valid(value))
        finally:
            _WORK.reset(token)


@lru_cache(1024)
def _search(pattern: str) -> Search:
    return compiled(pattern)


def _matches(pattern: str, text: str) -> bool:
    return _search(pattern)(text, 0) is not None


def _pattern(_: Any, pattern: str, instance: Any, __: Any) -> Errors:
    if isinstance(instance, str) and not _matches(pattern, instance):
        yield ValidationError("does not match")


def _pattern_properties(validator: Any, schemas: dict[str, Any], instance: Any, _: Any) -> Errors:
    for name, value in instance.items() if isinstance(instance, dict) else ():
        for pattern, schema in schemas.items():
            if _matches(pattern, name):
                yield from validator.descend(value, schema, path=name, schema_path=pattern)


def _additional_properties(validator: Any, further: Any, instance: Any, schema: dict[str, Any]) -> Errors:
    own, patterns = schema.get("properties", {}), schema.get("patternProperties", {})
    for name, value in instance.items() if isinstance(instance, dict) else ():
        if name not in own and not any(_matches(pattern, name) for pattern in patterns):
            yield from validator.descend(value, further, path=name)


def _unique_items(_: Any, is_unique: Any, instance: Any, __: Any) -> Errors:
    """Entries are compared as texts, whose hashes are keyed: an answer could make those of numbers collide."""
    entries = instance if is_unique and isinstance(instance, list) else ()
    if len({json.dumps(_plain(each), sort_keys=True) for each in entries}) < len(entries):
        yield ValidationError("has equal entries")


def _plain(value: Any) -> Any:
    """A value with whole numbers as integers: 1.0 equals 1."""
    if isinstance(value, dict):
        return {name: _plain(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_plain(each) for each in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _unevaluated(form: type[list[Any]] | type[dict[str, Any]]) -> Keyword:
    def keyword(validator: Any, _: Any, instance: Any, schema: dict[str, Any]) -> Errors:
        if isinstance(instance, form):
            places = range(len(instance)) if isinstance(instance, list) else instance
            evaluated = _evaluated(validator, instance, schema)
            if any(place not in evaluated for place in places):
                yield ValidationError("has unevaluated entries")

    return keyword


def _evaluated(validator: Any, instance: Any, schema: Any) -> set[Any]:
    """The indexes or the names that a schema evaluates, itself or by the schemas that it applies to the instance."""
    if not isinstance(schema, dict):
        return set()
    _WORK.get().step()
    places = _evaluated_names if isinstance(instance, dict) else _evaluated_indexes
    evaluated = places(validator, instance, schema)
    for target in (schema.get("$ref"), schema.get("$dynamicRef")):
        if target is not None:
            resolved = validator._resolver.lookup(target)
            inner = validator.evolve(schema=resolved.contents, _resolver=resolved.resolver)
            evaluated |= _evaluated(inner, instance, resolved.contents)
    for each in _applied(validator, instance, schema):
        evaluated |= _evaluated(validator, instance, each)
    return evaluated


def _applied(validator: Any, instance: Any, schema: dict[str, Any]) -> Iterator[Any]:
    """The schemas of a schema that apply to the same instance, which satisfies them."""
    for keyword in ("allOf", "oneOf", "anyOf"):
        yield from (each for each in schema.get(keyword, ()) if _allows(validator, each, instance))
    if "if" in schema:
        passes = _allows(validator, schema["if"], instance)
        if passes:
            yield schema["if"]
        yield schema.get("then" if passes else "else")
    for name, each in schema.get("dependentSchemas", {}).items():
        if isinstance(instance, dict) and name in instance:
            yield each


def _evaluated_names(validator: Any, instance: dict[str, Any], schema: dict[str, Any]) -> set[Any]:
    names: set[Any] = schema.get("properties", {}).keys() & instance.keys()
    patterns = schema.get("patternProperties", {})
    names |= {name for name in instance if any(_matches(pattern, name) for pattern in patterns)}
    for keyword in ("additionalProperties", "unevaluatedProperties"):
        if keyword in schema:
            names |= {name for name, value in instance.items() if _allows(validator, schema[keyword], value)}
    return names


def _evaluated_indexes(validator: Any, instance: list[Any], schema: dict[str, Any]) -> set[Any]:
    if "items" in schema:
        return set(range(len(instance)))
    indexes: set[Any] = set(range(len(schema.get("prefixItems", ()))))
    for keyword in ("contains", "unevaluatedItems"):
        if keyword in schema:
            indexes |= {at for at, value in enumerate(instance) if _allows(validator, schema[keyword], value)}
    return indexes


def _allows(validator: Any, schema: Any, instance: Any) -> bool:
    return next(validator.descend(instance, schema), None) is None


def _bounded(keyword: Keyword) -> Keyword:
    def stepping(validator: Any, value: Any, instance: Any, schema: Any) -> Errors | None:
        _WORK.get().step()
        return keyword(validator, value, instance, schema)

    return stepping


_OWN: dict[str, Keyword] = {
    "pattern": _pattern,
    "patternProperties": _pattern_properties,
    "additionalProperties": _additional_properties,
    "uniqueItems": _unique_items,
    "unevaluatedItems": _unevaluated(list),
    "unevaluatedProperties": _unevaluated(dict),
}
_VALIDATOR: Any = extend(
    Draft202012Validator,
    {name: _bounded(keyword) for name, keyword in {**Draft202012Validator.VALIDATORS, **_OWN}.items()},
)
