"""Values with fields that their type does not define: the known part is decoded, and the rest is reported."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.errors import CallerError
from adapters.ignored_fields import IgnoredFields
from adapters.wire.openai.known_fields import DefinedFields, LeftOut


class Leaf(msgspec.Struct, tag_field="type", tag="leaf", forbid_unknown_fields=True):
    text: str


class Tree(msgspec.Struct, tag_field="type", tag="tree", forbid_unknown_fields=True):
    inner: "str | list[Leaf | Tree | LeftOut]"
    extra: dict[str, Any] = {}


ENTRIES = DefinedFields[list[Leaf | Tree | LeftOut]](list[Leaf | Tree | LeftOut])
new = st.dictionaries(st.from_regex(r"x_[a-c]{1,2}", fullmatch=True), st.just({"a": [1.0, 10**30]}), max_size=2)
leaves = st.builds(lambda text: {"type": "leaf", "text": text}, st.text(max_size=4))
trees = st.recursive(
    leaves,
    lambda inner: st.builds(
        lambda inner, extra: {"type": "tree", "inner": inner, "extra": extra}, st.lists(inner), new
    ),
    max_leaves=6,
)


def newer(value: Any, data: st.DataObject, added: set[str]) -> Any:
    """The value with invented fields in each object, and invented objects in each list."""
    if isinstance(value, list):
        entries = [newer(entry, data, added) for entry in value]
        if data.draw(st.booleans()):
            added.add("x_type")
            entries.append({"type": "x_type", "deep": [{}]})
        return entries
    if isinstance(value, dict) and "type" in value:
        fields = data.draw(new)
        added.update(fields)
        return {name: inner if name == "extra" else newer(inner, data, added) for name, inner in value.items()} | fields
    return value


@given(st.lists(trees, max_size=3), st.data())
def test_invented_fields_and_types_change_nothing_and_are_reported(value: Any, data: st.DataObject) -> None:
    added, ignored = set[str](), IgnoredFields()
    plain = ENTRIES.reporting(ignored).decode(json.dumps(value).encode())
    assert ignored.ignored == []
    decoded = ENTRIES.reporting(ignored).decode(json.dumps(newer(value, data, added)).encode())
    assert defined(decoded) == plain
    assert set(ignored.ignored) == added


def defined(entries: Any) -> Any:
    if isinstance(entries, str):
        return entries
    entries_left = [entry for entry in entries if not isinstance(entry, LeftOut)]
    return [msgspec.structs.replace(e, inner=defined(e.inner)) if isinstance(e, Tree) else e for e in entries_left]


def test_an_invalid_value_stays_invalid_and_a_strict_route_refuses_the_unknown() -> None:
    for body in (
        b'[{"type":"leaf","x":1}]',
        b'[{"type":5}]',
        b'[{"x":1}]',
        b'{"x":1}',
        b"7",
        b'[{"type":"leaf","text":1}]',
    ):
        with pytest.raises(msgspec.ValidationError):
            ENTRIES.reporting(IgnoredFields()).decode(body)
    with pytest.raises(CallerError, match="x"):
        ENTRIES.reporting(IgnoredFields(strict=True)).decode(b'[{"type":"leaf","text":"","x":1}]')
    ignored = IgnoredFields()
    ENTRIES.reporting(ignored).decode(b'[{"type":"leaf","text":"","x":null}]')
    assert ignored.ignored == []
