"""Schemas of answers: the same verdicts as the validator of the library, and an end for each answer."""

import json
import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from gateway.features.guards.judges import schemas
from gateway.features.guards.judges.bounded_schema import BoundedSchema, TooMuchWorkError
from tests.support.guarding import received
from tests.support.judging import Judging, answer, judged

LONG = "a" * 200_000
BACKTRACKING = ["^(a+)+$", "^(a|aa)+$", "^(a|a?)+$", "(x+x+)+y", "^([a-zA-Z]+)*$", "(.*a){20}"]
WORK: dict[str, tuple[dict[str, Any], Any]] = {
    **{f"pattern {each}": ({"pattern": each}, f"{LONG}!") for each in BACKTRACKING},
    **{f"named {each}": ({"patternProperties": {each: {}}}, {f"{LONG}!": 1}) for each in BACKTRACKING},
    "further": ({"patternProperties": {"^(a+)+$": {}}, "additionalProperties": False}, {f"{LONG}!": 1}),
    "unevaluated": ({"patternProperties": {"^(a+)+$": {}}, "unevaluatedProperties": False}, {f"{LONG}!": 1}),
    "many": ({"patternProperties": {"^x": {}}, "unevaluatedProperties": False}, {f"x{at}": 1 for at in range(9999)}),
    "names": ({"propertyNames": {"pattern": "^(a+)+$"}}, {f"{LONG}!": 1}),
    "draft": ({"$schema": "https://json-schema.org/draft/2020-12/schema", "pattern": "^(a+)+$"}, f"{LONG}!"),
    "inner draft": (
        {"items": {"$schema": "https://json-schema.org/draft/2020-12/schema", "pattern": "^(a+)+$"}}, [f"{LONG}!"]
    ),
    "unique": ({"uniqueItems": True}, [{"n": at} for at in range(20_000)]),
    "colliding": ({"uniqueItems": True}, [[at * (2**61 - 1)] for at in range(20_000)]),
    "indexes": ({"contains": {"minimum": 0}, "unevaluatedItems": False}, list(range(20_000))),
}  # fmt: skip


@pytest.mark.parametrize("work", WORK)
def test_a_validation_of_a_large_answer_ends(work: str) -> None:
    schema, value = WORK[work]
    assert BoundedSchema(schema).allows(value) in (True, False)


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


DOUBLING: list[dict[str, Any]] = [
    {"anyOf": [{"items": {"$ref": "#"}, "minItems": 2}, {"items": {"$ref": "#"}, "minItems": 2}], "type": "array"},
    {"allOf": [{"items": {"$ref": "#"}}, {"items": {"$ref": "#"}}]},
    {"unevaluatedItems": {"$ref": "#"}, "anyOf": [{"contains": {"$ref": "#"}}, {"contains": {"$ref": "#"}}]},
]


@pytest.mark.parametrize("schema", DOUBLING, ids=lambda schema: "".join(schema))
def test_a_schema_that_doubles_its_work_in_each_level_ends(schema: dict[str, Any]) -> None:
    with pytest.raises(TooMuchWorkError):
        BoundedSchema(schema).allows(nested(60), steps=10_000)
    with pytest.raises(TooMuchWorkError):
        BoundedSchema(schema).allows(nested(60), seconds=0.0)


@pytest.mark.parametrize("size", [1, 2000])
@pytest.mark.parametrize("on_error", ["block", "pass"])
async def test_an_answer_with_too_much_work_does_not_leave(
    on_error: str, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(schemas, "MOST_STEPS", 1200)
    text = json.dumps(nested(60)).ljust(size)
    guard = {"name": "g", "kind": "schema", "json_schema": DOUBLING[1], "on_error": on_error}
    one = judged(answer(text), Judging(), guard)
    ((status, body, _),) = await received(one, "/v1/chat/completions")
    assert (status, json.loads(body)["error"]["code"]) == (400, "content_filter")
    one.assert_idle()


@pytest.mark.parametrize(
    ("text", "expected"), [("aab", 200), ("aab!", 400), ("aé", 400), ("\ud800", 400), ("a\n", 400)]
)
async def test_patterns_are_compared_in_linear_time(text: str, expected: int) -> None:
    guard = {"name": "g", "kind": "schema", "json_schema": {"type": "string", "pattern": "^[a-z]+$"}}
    one = judged(answer(json.dumps(text)), Judging(), guard)
    ((status, _, _),) = await received(one, "/v1/chat/completions")
    assert status == expected


NAMES = st.sampled_from(["a", "b", "ab", "ba", "x1", ""])
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 2) | st.sampled_from([0.0, 1.0, 0.5]) | NAMES,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(NAMES, inner, max_size=4),
    max_leaves=8,
)
PATTERNS = st.sampled_from(["^a", "b$", "^[a-b]+$", "[0-9]", ""])
LEAVES = st.one_of(
    st.booleans(),
    st.just({"$ref": "#/$defs/one"}),
    st.just({"$dynamicRef": "#/$defs/one"}),
    st.just({"uniqueItems": True}),
    st.builds(lambda kind: {"type": kind}, st.sampled_from(["string", "integer", "array", "object"])),
    st.builds(lambda pattern: {"pattern": pattern}, PATTERNS),
    st.builds(lambda names: {"required": names}, st.lists(NAMES, max_size=2, unique=True)),
)


def _of(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    lists = st.lists(inner, min_size=1, max_size=3)
    keywords = {
        **dict.fromkeys(("allOf", "anyOf", "oneOf", "prefixItems"), lists),
        **dict.fromkeys(("not", "if", "then", "else", "items", "contains", "additionalProperties"), inner),
        **dict.fromkeys(("unevaluatedItems", "unevaluatedProperties", "propertyNames"), inner),
        "properties": st.dictionaries(NAMES, inner, max_size=3),
        "dependentSchemas": st.dictionaries(NAMES, inner, max_size=2),
        "patternProperties": st.dictionaries(PATTERNS, inner, max_size=2),
        "uniqueItems": st.booleans(),
    }
    return st.fixed_dictionaries({}, optional=keywords)


SCHEMAS = st.recursive(LEAVES, _of, max_leaves=8)


@given(SCHEMAS, SCHEMAS, VALUES)
@settings(max_examples=600)
def test_verdicts_are_those_of_the_library(schema: Any, one: Any, value: Any) -> None:
    whole = (
        {"$defs": {"one": one}, "allOf": [schema]} if isinstance(schema, bool) else {**schema, "$defs": {"one": one}}
    )
    try:
        expected = Draft202012Validator(whole).is_valid(value)
    except RecursionError:
        return
    assert BoundedSchema(whole).allows(value) == expected


@given(PATTERNS, st.text("ab01x\n", max_size=6))
def test_simple_patterns_match_as_in_other_engines(pattern: str, text: str) -> None:
    if not text.endswith("\n"):  # Python's `$` also matches before a last line feed; that of JSON Schema does not
        assert BoundedSchema({"pattern": pattern}).allows(text) == bool(re.search(pattern, text))
