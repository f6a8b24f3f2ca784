"""JSON Schemas of answers, in the form in which each validation ends: patterns are RE2's, and the draft is 2020-12."""

from collections.abc import Iterator
from typing import Any

from config.patterns import PatternError, compiled

DRAFTS = frozenset(("https://json-schema.org/draft/2020-12/schema", "https://json-schema.org/draft/2020-12/schema#"))
"""What `$schema` may be. Another draft has rules of its own for patterns."""
_VALUES = frozenset(("const", "default", "enum", "examples"))
"""Keywords with values, which are no schemas."""
_NAMED = frozenset(("$defs", "definitions", "dependentSchemas", "patternProperties", "properties"))
"""Keywords with schemas by name."""

Place = tuple[str | int, ...]


def schemas_of(value: Any, place: Place = ()) -> Iterator[tuple[Place, dict[str, Any]]]:
    """Each schema inside a schema, and itself, with its place."""
    if isinstance(value, dict):
        yield place, value
        for name, inner in value.items():
            if name in _NAMED and isinstance(inner, dict):
                for each, schema in inner.items():
                    yield from schemas_of(schema, (*place, name, each))
            elif name not in _VALUES:
                yield from schemas_of(inner, (*place, name))
    elif isinstance(value, list | tuple):
        for index, inner in enumerate(value):
            yield from schemas_of(inner, (*place, index))


def faults_of(schema: dict[str, Any]) -> Iterator[tuple[Place, str]]:
    """What keeps a schema from being validated in a bounded time, by place. Raises `EngineMissing`."""
    for place, each in schemas_of(schema):
        draft = each.get("$schema")
        if isinstance(draft, str) and draft not in DRAFTS:
            yield (*place, "$schema"), "is another draft than 2020-12"
        named = each.get("patternProperties")
        patterns = {(*place, "patternProperties", name): name for name in named} if isinstance(named, dict) else {}
        if isinstance(pattern := each.get("pattern"), str):
            patterns[(*place, "pattern")] = pattern
        for where, written in patterns.items():
            try:
                compiled(written)
            except PatternError as error:
                yield where, str(error)
