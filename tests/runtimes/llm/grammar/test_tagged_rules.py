"""The grammar of calls between tags: the arguments of the schema, and no others."""

import asyncio
from functools import cache
from typing import Any

import pytest

from runtimes.llm.api.tools import ToolFunction, calls_grammar
from runtimes.llm.grammar.constraint import Compiled, Grammars
from runtimes.llm.text.tool_parser import TAGGED
from tests.support.byte_tokenizer import byte_tokenizer

pytestmark = pytest.mark.processes
SCHEMAS: dict[str, dict[str, Any]] = {
    "edit": {
        "type": "object",
        "properties": {
            "path": {"type": "string"},
            "mode": {"enum": ["all", "one"]},
            "count": {"$ref": "#/$defs/count"},
            "place": {"type": "integer", "minimum": 1},
            "where": {"type": "object", "properties": {"n": {"$ref": "#/$defs/count"}}, "required": ["n"]},
        },
        "required": ["path", "place"],
        "$defs": {"count": {"type": "integer"}},
    },
    "now": {"type": "object", "properties": {}, "additionalProperties": False},
    "free": {},
}


@cache
def rules(parallel: bool) -> Compiled:
    vocabulary = byte_tokenizer()
    functions = [ToolFunction(name, schema) for name, schema in SCHEMAS.items()]
    grammar = calls_grammar(TAGGED, functions, vocabulary, parallel=parallel)
    return asyncio.run(Grammars(vocabulary, len(vocabulary.pieces), vocabulary.eos_token_ids).compiled(grammar))


def accepted(text: str, parallel: bool = False) -> bool:
    """Whether the grammar allows the text, and then the end."""
    matcher, vocabulary = rules(parallel).start(), byte_tokenizer()
    ends = vocabulary.eos_token_ids
    for token_id in vocabulary.encode(text):
        if not matcher.mask()[token_id // 8] >> token_id % 8 & 1:
            return False
        matcher.advance(token_id)
    mask = matcher.mask()
    return any(mask[end // 8] >> end % 8 & 1 for end in ends)


def call(name: str, *arguments: tuple[str, str]) -> str:
    inside = "".join([f"<parameter={key}>\n{value}\n</parameter>\n" for key, value in arguments])
    return f"<tool_call>\n<function={name}>\n{inside}</function>\n</tool_call>"


@pytest.mark.parametrize(
    "text",
    [
        call("now"),
        call("edit", ("path", 'a "b"\n\n<c>'), ("place", "3")),
        call("edit", ("path", ""), ("mode", "all"), ("count", "-1"), ("place", "12"), ("where", '{"n": 1}')),
        call("free"),
        call("free", ("x", "1"), ("any name", "two\nlines")),
    ],
)
def test_a_call_of_the_schema_is_allowed(text: str) -> None:
    assert accepted(text)


@pytest.mark.parametrize(
    "text",
    [
        call("rm"),
        call("now", ("x", "1")),
        call("edit", ("path", "a")),
        call("edit", ("place", "1"), ("path", "a")),
        call("edit", ("path", "a"), ("place", "0")),
        call("edit", ("path", "a"), ("place", "one")),
        call("edit", ("path", "a"), ("count", "x"), ("place", "1")),
        call("edit", ("path", "a"), ("mode", "some"), ("place", "1")),
        call("edit", ("path", "a"), ("place", "1"), ("where", '{"n": "1"}')),
        call("edit", ("path", "a"), ("place", "1"), ("more", "1")),
        call("now") + "\n" + call("now"),
    ],
)
def test_another_call_is_not(text: str) -> None:
    assert not accepted(text)


def test_several_calls_are_allowed_where_they_may_be_parallel() -> None:
    assert accepted(call("now") + "\n" + call("edit", ("path", "a"), ("place", "1")), parallel=True)
