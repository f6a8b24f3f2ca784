"""A node reads a field as the schema does: its typed value, or the default."""

from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from config.document import Node
from config.place import Place, section_at, type_at
from config.schema.money import MoneyBudget
from config.schema.section import Section
from config.schema.units import HostPort, RateLimit


@pytest.mark.parametrize(
    ("place", "value", "expected"),
    [
        (("listen", "http"), "0.0.0.0:80", HostPort("0.0.0.0", 80)),
        (("models", 0, "routes", 0, "timeout", "total"), "2m", 120.0),
        (("tenants", 0, "limits", "requests"), "600/min", RateLimit(600, 60)),
        (("tenants", 0, "limits", 1, "spend"), "1 usd/day", MoneyBudget(10**12, "usd", "day")),
        (("models", 0, "limits", "concurrency"), 4, 4),
        (("pools", 0, "runtime", "mode"), "poll", "poll"),
        (("models", 0, "routes", 0, "else"), True, True),
    ],
)
def test_a_value_is_read_as_the_schema_parses_it(place: Place, value: object, expected: object) -> None:
    assert Node(value, place).read(type(expected)) == expected


@pytest.mark.parametrize(
    ("place", "value", "kind"),
    [
        (("models", 0, "routes", 0, "timeout", "total"), 120, float),
        (("models", 0, "routes", 0, "timeout", "total"), {"seconds": 2}, float),
        (("pools", 0, "max_connections"), "many", int),
        (("pools", 0, "max_connections"), True, int),
        (("pools", 0, "max_connections"), 8, str),
        (("pools", 0, "balance", "by"), "chance", str),
        (("pools", 0, "nothing"), "text", str),
        (("pools", 0, "name"), None, str),
        (("version", "deeper"), "text", str),
    ],
)
def test_nothing_is_read_from_an_invalid_value(place: Place, value: object, kind: type[object]) -> None:
    assert Node(value, place).read(kind) is None


def _sections() -> Iterator[tuple[Place, type[Section]]]:
    """The place of every section, each section once."""
    waiting: list[Place] = [()]
    seen: set[type[Section]] = set()
    for place in waiting:
        section = section_at(place)
        if section is not None and section not in seen:
            seen.add(section)
            yield place, section
            inner = [(*place, field.alias or name) for name, field in section.model_fields.items()]
            waiting += inner + [(*each, 0) for each in inner if type_at((*each, 0)) is not None]


PLACES = tuple(_sections())


@pytest.mark.parametrize(("place", "section"), PLACES, ids=str)
def test_an_absent_field_has_the_default_of_the_schema(place: Place, section: type[Section]) -> None:
    for name, field in section.model_fields.items():
        default = None if field.is_required() else field.get_default(call_default_factory=True)
        assert Node({}, place)[field.alias or name].read(object) == default


@settings(max_examples=10)
@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(), lambda inner: st.lists(inner).map(tuple)))
def test_no_value_raises(value: object) -> None:
    for place, section in PLACES:
        for name in section.model_fields:
            Node(value, (*place, name)).read(object)
