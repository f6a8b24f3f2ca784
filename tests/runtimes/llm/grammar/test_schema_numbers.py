"""Integers of answers are exact: of any length where they are free, and never a rounded one of the schema's."""

from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.errors import CallerError
from runtimes.llm.grammar.build import CannotBuild, build
from runtimes.llm.grammar.json_schema import Rounded, exact, json_text, of_schema
from runtimes.llm.text.tool_parser import HERMES, CallArguments, ToolParser
from tests.support.byte_tokenizer import READS

pytestmark = pytest.mark.plain
ODD = 2**53 + 1
near = st.builds(
    lambda power, more, sign: sign * (2**power + more),
    st.integers(50, 66), st.integers(-3, 3), st.sampled_from([1, -1]),
)  # fmt: skip


def allows(schema: dict[str, Any], number: int) -> bool:
    matcher = build(READS, "json_schema", json_text(schema, "x", strict=True))
    text = str(number).encode()
    return bool(matcher.validate_tokens([*text, 256]) == len(text) + 1)


@given(near, st.integers(-2, 2))
def test_a_constant_allows_its_own_digits_only_or_is_refused(number: int, more: int) -> None:
    try:
        assert allows({"const": number}, number + more) == (more == 0)
    except CallerError:
        assert number != int(float(number)) or abs(number) >= 2**63


@given(st.sampled_from(["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"]), near, st.integers(-2, 2))
def test_a_bound_allows_nothing_beyond_it_or_is_refused(keyword: str, number: int, more: int) -> None:
    schema = {"type": "integer", keyword: number}
    try:
        allowed = allows(schema, number + more)
    except (CallerError, CannotBuild):
        return
    assert not allowed or jsonschema.Draft202012Validator(schema).is_valid(number + more)


def test_the_ends_of_64_bit_integers_are_bounds() -> None:
    schema = {"type": "integer", "minimum": -(2**63), "maximum": 2**63 - 1}
    assert allows(schema, 2**63 - 1)
    assert allows(schema, -(2**63 - 1024))
    assert not allows(schema, 2**63)
    assert not allows(schema, -(2**63) - 1)


def test_without_strict_a_number_that_would_be_rounded_is_passed_over() -> None:
    schema = {"type": "object", "properties": {"const": {"enum": [1, ODD], "type": "integer"}, "b": {"maximum": ODD}}}
    expected = {"type": "object", "properties": {"const": {"type": "integer"}, "b": {}}}
    assert exact(schema, strict=False) == expected
    assert schema["properties"] != expected["properties"]
    with pytest.raises(Rounded, match=str(ODD)):
        exact(schema, strict=True)
    with pytest.raises(CallerError, match="9007199254740993"):
        of_schema(schema, "guided_json", strict=True)


def test_names_and_notes_are_no_numbers_of_the_schema() -> None:
    schema = {"default": ODD, "examples": [ODD], "properties": {"maximum": {"type": "integer"}}, "const": 1.5}
    assert exact(schema, strict=True) is schema


@pytest.mark.parametrize("number", ["9007199254740993", "1" * 400, "1.10", "1e400", "-0"])
def test_arguments_of_a_call_keep_the_digits_that_the_model_writes(number: str) -> None:
    for call in (
        f'{{"name": "f", "arguments": {{"a": {number}}}}}',
        f'{{"arguments": {{"a": {number}}}, "name": "f"}}',
    ):
        parser = ToolParser(HERMES, ["f"])
        parts = [*parser.push(f"<tool_call>\n{call}\n</tool_call>"), *parser.finish()]
        arguments = "".join(part.text for part in parts if isinstance(part, CallArguments))
        assert arguments == f'{{"a": {number}}}'
