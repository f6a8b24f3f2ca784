"""Calls between tags: the arguments are those that a model wrote, of the types of the function's schema."""

import json
import random
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runtimes.llm.text.tagged_call import is_text
from runtimes.llm.text.tool_parser import TAGGED, CallArguments, CallBegun, Part, ToolParser

pytestmark = pytest.mark.plain
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "text": {"type": "string"},
        "maybe": {"type": ["string", "null"]},
        "choice": {"enum": ["1", "true"]},
        "count": {"type": "integer"},
        "share": {"type": "number"},
        "sure": {"type": "boolean"},
        "nothing": {"type": "null"},
        "level": {"enum": [1, 2]},
        "list": {"type": "array"},
        "object": {"type": "object"},
        "any": {},
        "named": {"$ref": "#/$defs/number"},
        "either": {"anyOf": [{"$ref": "#/$defs/number"}, {"type": "null"}]},
        "worded": {"anyOf": [{"type": "null"}, {"$ref": "#/$defs/word"}]},
        "endless": {"$ref": "#/$defs/endless"},
    },
    "$defs": {
        "number": {"type": "integer"},
        "word": {"enum": ["1", "null"]},
        "endless": {"$ref": "#/$defs/endless"},
    },
}
TEXTS = st.text(st.characters(codec="utf-8", exclude_characters="\r"), max_size=30).filter(
    lambda text: "</parameter>" not in text
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(st.characters(codec="utf-8"), max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("ab", max_size=2), inner, max_size=2),
    max_leaves=5,
).filter(lambda value: "</parameter>" not in json.dumps(value, ensure_ascii=False))
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "text": TEXTS,
    "maybe": TEXTS,
    "choice": st.sampled_from(["1", "true"]),
    "count": st.integers(),
    "share": st.floats(allow_nan=False, allow_infinity=False),
    "sure": st.booleans(),
    "nothing": st.none(),
    "level": st.sampled_from([1, 2]),
    "list": st.lists(JSON, max_size=3),
    "object": st.dictionaries(st.text("ab<>", max_size=3), JSON, max_size=3),
    "named": st.integers(),
    "either": st.integers() | st.none(),
    "worded": st.sampled_from(["1", "null"]),
    "endless": st.lists(JSON, max_size=2) | st.just("3"),
    "any": st.lists(JSON, max_size=2) | st.just("3") | st.just("True"),
}


def arguments(answer: str, cuts: list[int]) -> list[Any]:
    """Of each call."""
    parser = ToolParser(TAGGED, ["f"], schemas={"f": SCHEMA})
    ends = [0, *sorted(cuts), len(answer)]
    parts: list[Part] = []
    for start, end in pairwise(ends):
        parts += parser.push(answer[start:end])
    parts += parser.finish()
    texts = ["" for part in parts if isinstance(part, CallBegun)]
    for part in parts:
        if isinstance(part, CallArguments):
            texts[part.at] += part.text
    return [json.loads(text) for text in texts]


def written(values: dict[str, Any], python: bool) -> str:
    """As the models' templates write a call; `python` is the spelling of its words in some of them."""
    lines = ["<tool_call>", "<function=f>"]
    for key, value in values.items():
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        if python and (value is None or isinstance(value, bool)):
            text = str(value)
        lines += [f"<parameter={key}>", text, "</parameter>"]
    return "\n".join([*lines, "</function>", "</tool_call>"])


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.fixed_dictionaries({}, optional=VALUES), min_size=1, max_size=2),
    st.booleans(),
    st.randoms(use_true_random=False),
)
def test_arguments_are_those_of_the_call_however_it_was_cut(
    calls: list[dict[str, Any]], python: bool, chance: random.Random
) -> None:
    answer = "\n".join([written(call, python) for call in calls])
    cuts = [chance.randrange(len(answer)) for _ in range(chance.randrange(8))]
    assert arguments(answer, cuts) == calls
    assert arguments(answer, list(range(1, len(answer)))) == calls


def test_a_text_comes_while_it_is_written() -> None:
    parser = ToolParser(TAGGED, ["f"], schemas={"f": SCHEMA})
    parser.push("<tool_call>\n<function=f>\n<parameter=text>\n")
    assert [part.text for part in parser.push("one\ntwo\n") if isinstance(part, CallArguments)] == ["one\\ntwo"]


@pytest.mark.parametrize(
    "values", [{"count": "three"}, {"share": "NaN"}, {"list": "[Infinity]"}, {"any": '{"a": -Infinity}'}]
)
def test_a_value_that_is_not_of_its_type_stays_a_text(values: dict[str, Any]) -> None:
    assert arguments(written(values, False), []) == [values]


class _Counted(dict[str, Any]):
    """Counts the look-ups of its entries."""

    count = 0

    def get(self, key: str, default: Any = None) -> Any:
        self.count += 1
        return super().get(key, default)


def test_choices_that_lead_back_to_themselves_are_followed_once() -> None:
    ring = {"anyOf": [{"$ref": f"#/$defs/{name}"} for name in ("a", "b")]}
    definitions = _Counted(a=ring, b=ring)
    whole = {"$defs": definitions}
    assert is_text(ring, whole) is None
    assert definitions.count == 2
    assert is_text({"anyOf": [ring, {"type": "string"}]}, whole) is True
