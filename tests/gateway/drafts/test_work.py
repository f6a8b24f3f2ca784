"""Every draft has a result: problems with lines, or a valid configuration."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from config import default_path
from gateway.drafts.differences import difference
from gateway.drafts.orders import DraftOrder, DraftResult
from gateway.drafts.work import MOST_PROBLEMS, done

PASSWORD = "Correct-Horse-9"
FILE = f"""version: 1
state: {{database: "sqlite:///x.db"}}  # before: postgresql://head:{PASSWORD}@db/x
pools:
  - {{name: up, endpoints: ["http://127.0.0.1:9"]}}
models:
  - {{name: chat, routes: [{{to: up}}]}}
tenants:
  - {{name: acme, models: ["*"]}}
"""
SOURCES = [FILE, *(path.read_text() for path in sorted((default_path().parent / "examples").glob("*.yaml")))]
SIGNS = st.sampled_from([*"{}[]:-\t\n |>'\"#%@\0水", "&a", "*a", "!x", "<<"])
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=True) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)


@st.composite
def mutated(draw: st.DrawFn) -> str:
    """A file in which signs are inserted, and spans are cut, repeated or moved."""
    text = draw(st.sampled_from(SOURCES))
    for _ in range(draw(st.integers(0, 4))):
        at, end = sorted(draw(st.tuples(st.integers(0, len(text)), st.integers(0, len(text)))))
        end = min(end, at + 60)
        change = draw(st.sampled_from(["insert", "cut", "repeat", "sign"]))
        middle = {"insert": draw(st.text(max_size=12)), "cut": "", "repeat": text[at:end] * 2, "sign": draw(SIGNS)}
        text = text[:at] + middle[change] + text[at if change in ("insert", "sign") else end :]
    return text


@st.composite
def restructured(draw: st.DrawFn) -> str:
    """A file in which a value at any place is another one."""
    data = yaml.safe_load(draw(st.sampled_from(SOURCES)))
    node = data
    for _ in range(draw(st.integers(0, 5))):
        keys = list(node) if isinstance(node, dict) else list(range(len(node))) if isinstance(node, list) else []
        if not keys:
            break
        key = draw(st.sampled_from(keys))
        if not isinstance(node[key], dict | list) or draw(st.booleans()):
            node[key] = draw(values)
            break
        node = node[key]
    return yaml.safe_dump(data, allow_unicode=True)


def order(folder: Path, text: str, **fields: object) -> DraftOrder:
    path = folder / "headrace.yaml"
    body = msgspec.json.encode({"text": text})
    return DraftOrder("check", str(path), b"k" * 32, FILE, FILE.encode(), body, **fields)  # type: ignore[arg-type]


def checked(folder: Path, text: str) -> dict[str, Any]:
    result = done(order(folder, text))
    assert result.status == 200
    assert PASSWORD.encode() not in result.body
    return dict(msgspec.json.decode(result.body))


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=st.one_of(mutated(), restructured(), st.text(max_size=200)))
def test_every_draft_has_a_result(tmp_path: Path, text: str) -> None:
    body = checked(tmp_path, text)
    assert body["valid"] != bool(body["problems"])


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(body=st.one_of(st.binary(max_size=200), values.map(lambda value: msgspec.json.encode(repr(value)))))
def test_every_body_has_a_result(tmp_path: Path, body: bytes) -> None:
    result = done(msgspec.structs.replace(order(tmp_path, ""), body=body))
    assert isinstance(result, DraftResult)
    assert result.status == 400


def test_problems_have_lines_and_suggestions(tmp_path: Path) -> None:
    body = checked(tmp_path, FILE.replace("routes", "rotues").strip())
    assert body["valid"] is False
    problem = body["problems"][0]
    assert (problem["line"], problem["path"], problem["suggestion"]) == (6, "models[0].rotues", "routes")


def test_a_check_reports_tests_and_the_difference(tmp_path: Path) -> None:
    (tmp_path / "headrace.tests.yaml").write_text(
        "tests:\n"
        "  - {request: {tenant: acme, model: chat}, expect: {pool: up}}\n"
        "  - {name: no other, request: {tenant: acme, model: other}, expect: {refused: model_not_found}}\n"
    )
    body = checked(tmp_path, FILE)
    assert body["tests"] == {"file": "headrace.tests.yaml", "passed": 2, "failures": []}
    assert body["diff"] == ""
    body = checked(tmp_path, FILE.replace("name: chat", "name: other"))
    assert body["valid"] is True
    tests, diff = body["tests"], body["diff"]
    assert isinstance(tests, dict)
    assert isinstance(diff, str)
    assert tests["passed"] == 0
    assert len(tests["failures"]) == 2
    assert str(tmp_path) not in str(tests)
    assert "-  - {name: chat, routes: [{to: up}]}\n+  - {name: other, routes: [{to: up}]}" in diff


def test_a_draft_with_placeholders_has_its_secrets_again(tmp_path: Path) -> None:
    show = msgspec.structs.replace(order(tmp_path, ""), task="show")
    redacted = msgspec.json.decode(done(show).body)["text"]
    assert PASSWORD not in redacted
    result = done(order(tmp_path, redacted.replace("chat", "talk")))
    assert result.text == FILE.replace("chat", "talk")


@pytest.mark.parametrize(
    "text",
    [
        "a: " + "[" * 100_000,
        "k0: &k0 [1, 1]\n" + "".join(f"k{i + 1}: &k{i + 1} [*k{i}, *k{i}, *k{i}, *k{i}]\n" for i in range(12)),
        "pools:\n" + "  - {name: 1}\n" * 5000,
        "x: " + "a" * 2_000_000,
    ],
    ids=["deep", "aliases", "many problems", "long"],
)
def test_results_of_large_drafts_are_bounded(tmp_path: Path, text: str) -> None:
    body = checked(tmp_path, text)
    problems = body["problems"]
    assert isinstance(problems, list)
    assert 0 < len(problems) <= MOST_PROBLEMS


def test_long_texts_are_not_compared() -> None:
    assert difference("a\n" * 20_001, "b") is None
    assert difference("a", "a") == ""
