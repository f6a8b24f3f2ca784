import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from config.document import MAX_BYTES, Lines, Node, parse, parse_text
from config.place import Place, section_at, type_at
from config.problem import ConfigError
from config.schema.money import MoneyBudget
from config.schema.section import Section
from config.schema.units import HostPort, RateLimit

from .conftest import Complaints


def data(tmp_path: Path, text: str) -> object:
    path = tmp_path / "f.yaml"
    path.write_text(text)
    document = parse(path)
    assert document.problems == []
    return document.data


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("no", "no"),
        ("on", "on"),
        ("2027-06-30", "2027-06-30"),
        ("1:30", "1:30"),
        ("0x10", "0x10"),
        ("1e3", "1e3"),
        (".inf", ".inf"),
        ("'12'", "12"),
        ("12", 12),
        ("-1.5", -1.5),
        ("true", True),
        ("null", None),
        ("~", None),
        ("", None),
        ("[a, 1]", ("a", 1)),
        ("9" * 5000, "9" * 5000),
    ],
)
def test_plain_values_have_their_types(tmp_path: Path, text: str, value: object) -> None:
    assert data(tmp_path, f"a: {text}\n") == {"a": value}


def test_keys_and_values_keep_their_lines(tmp_path: Path) -> None:
    path = tmp_path / "f.yaml"
    path.write_text("# one\na:\n  b:\n    - x\n    -\n      c: y\n  d:\n    z\n")
    lines = parse(path).lines
    assert lines[("a",)] == Lines(2, 3)
    assert lines[("a", "b", 0)] == Lines(4, 4)
    assert lines[("a", "b", 1, "c")] == Lines(6, 6)
    assert lines[("a", "d")] == Lines(7, 8)


def test_an_alias_is_the_value_again(tmp_path: Path) -> None:
    assert data(tmp_path, "a: &x {b: 1}\nc: *x\n") == {"a": {"b": 1}, "c": {"b": 1}}


def test_a_byte_order_mark_is_no_text(tmp_path: Path) -> None:
    assert data(tmp_path, "\ufeffa: 1\n") == {"a": 1}


BOMB = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"{new}: &{new} [{', '.join([f'*{old}'] * 9)}]\n" for old, new in zip("abcdefgh", "bcdefghi", strict=True)
)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", " is empty"),
        ("# nothing\n", " is empty"),
        ("- a\n", "1: expected fields"),
        ("a: 1\n b: 2\n", "2: is not valid YAML"),
        ("a: 'b\n", "2: is not valid YAML"),
        ("a: *nowhere\n", "1: is not valid YAML: found undefined alias"),
        ("a: 1\n---\nb: 2\n", "2: is not valid YAML"),
        ("a: \x07\n", " holds a control character"),
        ("a:\n  " + "[" * 40 + "]" * 40, "2: nests deeper than 32"),
        ("a:\n" + "- " * 300_000, "2: nests deeper than 32"),
        ("a: &a [*a]\n", "1: the aliases expand to too much"),
        (BOMB, ": the aliases expand to too much"),
    ],
)
def test_unreadable_documents(complaints: Complaints, text: str, problem: str) -> None:
    (only,) = complaints(text)
    assert problem in only


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("version: 1\nlisten:\n  http: a\n  http: b\n", "4: listen.http: is given twice, first on line 3: keep one"),
        ("listen: {http: a, http: b, http: c}\n", "1: listen.http: is given twice"),
        ("a: !!python/object:os.system x\n", "1: a: YAML tags (!name) are not read"),
        ("a: 1\nb: !custom [1]\n", "2: b: YAML tags (!name) are not read"),
        ("a: &x {b: 1}\nc:\n  <<: *x\n", "3: c: merge keys (<<) are not read"),
        ("? [a]\n: b\n", "1: a field's name is plain text"),
    ],
)
def test_values_that_are_refused_beside_other_problems(complaints: Complaints, text: str, problem: str) -> None:
    reported = complaints(text)
    assert any(line.startswith(problem) for line in reported)
    assert any("pools: is required" in line for line in reported)


def test_files_that_are_no_text(tmp_path: Path) -> None:
    path = tmp_path / "f.yaml"
    with pytest.raises(ConfigError, match=f"^{path}: cannot be read: No such file"):
        parse(path)
    with pytest.raises(ConfigError, match="cannot be read: Is a directory"):
        parse(tmp_path)
    path.write_bytes(b"a: \xff\n")
    with pytest.raises(ConfigError, match="is not UTF-8"):
        parse(path)
    path.write_bytes(b"#" * (MAX_BYTES + 1))
    with pytest.raises(ConfigError, match="is larger than 8 MiB"):
        parse(path)


@pytest.mark.parametrize(
    "text",
    [
        "pools: [${URL}]\n",
        "pools:\n  - {name: a, endpoints: [${URL}]}\n",
        "pools: [http://a, ${URL}]\n",
        "pools: [\n  http://a,\n  ${URL}\n]\n",
        "pools: [${URL}:8000/v1]\n",
    ],
)
def test_a_reference_without_quotes_inside_brackets_is_named(text: str) -> None:
    with pytest.raises(ConfigError, match=r'Inside brackets a reference needs quotes: "\$\{URL\}') as refused:
        parse_text(text, "file.yaml")
    quoted = re.sub(r"\$\{URL\}[^\],}\s]*", lambda reported: f'"{reported[0]}"', text)
    assert not parse_text(quoted, "file.yaml").problems
    assert len(refused.value.problems) == 1


def test_another_mistake_in_brackets_names_no_reference() -> None:
    with pytest.raises(ConfigError) as refused:
        parse_text('key: "${KEY}"\npools: [a b: c: d, {]\n', "file.yaml")
    assert "reference" not in str(refused.value)


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
