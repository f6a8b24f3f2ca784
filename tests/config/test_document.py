import re
from pathlib import Path

import pytest

from config.document import MAX_BYTES, Lines, parse, parse_text
from config.problem import ConfigError

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
