"""Calls of tools, found in text: the same however the text was cut."""

import json
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runtimes.llm.text.tool_parser import (
    HERMES,
    LLAMA,
    MISTRAL,
    TAGGED,
    AnswerText,
    CallBegun,
    Part,
    ToolFormat,
    ToolParser,
    format_of,
)
from tests.support.cases import cases

pytestmark = pytest.mark.plain
NAMES = {"add", "get_weather"}
FORMATS = {form.name: form for form in (HERMES, MISTRAL, LLAMA, TAGGED)}


def read(tool_format: ToolFormat, pieces: list[str], most: int | None = None) -> tuple[str, list[tuple[str, str]]]:
    """The text and the calls."""
    parser = ToolParser(tool_format, NAMES, most=most)
    parts: list[Part] = [part for piece in pieces for part in parser.push(piece)]
    parts += parser.finish()
    text, calls = "", list[tuple[str, str]]()
    for part in parts:
        if isinstance(part, AnswerText):
            text += part.text
        elif isinstance(part, CallBegun):
            assert part.at == len(calls)
            calls.append((part.name, ""))
        else:
            calls[part.at] = (calls[part.at][0], calls[part.at][1] + part.text)
    return text, calls


@pytest.mark.parametrize(("tool_format", "answer", "text", "calls"), cases(__file__, "answers"))
def test_texts_and_calls(tool_format: str, answer: str, text: str, calls: list[list[str]]) -> None:
    for pieces in ([answer], list(answer)):
        assert read(FORMATS[tool_format], pieces) == (text, list(map(tuple, calls)))


@settings(max_examples=100, deadline=None)
@given(
    st.sampled_from([HERMES, MISTRAL, LLAMA, TAGGED]),
    st.lists(st.sampled_from([
        "<tool_call>", "</tool_call>", "[TOOL_CALLS]", "[", "]", "{", "}", '{"name": "add", ',
        '"arguments": {', '"', "\\",
        '"parameters": {"x": "', "add", " ", "\n", "text", ", ", "; ", "<|python_tag|>", "<tool",
        "<function=", "<function=add>", "<parameter=", "<parameter=x>", "</parameter>", "</function>",
    ]), max_size=14).map("".join),
    st.randoms(use_true_random=False),
)  # fmt: skip
def test_however_it_is_cut_and_whatever_it_is(tool_format: ToolFormat, answer: str, chance: random.Random) -> None:
    cuts = sorted(chance.randrange(len(answer) + 1) for _ in range(5))
    pieces = [answer[a:b] for a, b in zip([0, *cuts], [*cuts, len(answer)], strict=True)]
    whole = read(tool_format, [answer])
    assert read(tool_format, pieces) == whole
    if not whole[1]:
        assert whole[0] == answer


def test_arguments_come_as_they_are_written() -> None:
    parser = ToolParser(HERMES, NAMES)
    begun = parser.push('<tool_call>\n{"name": "add", "arguments": ')
    assert [type(part) for part in begun + parser.push("{")] == [CallBegun, type(parser.push('"a"')[0])]
    assert [part.text for part in parser.push(": 1") if not isinstance(part, CallBegun)] == [": 1"]


def test_calls_beyond_the_most_are_passed_over() -> None:
    answer = "".join(f"<tool_call>{json.dumps({'name': 'add', 'arguments': {'a': i}})}</tool_call>" for i in range(3))
    assert read(HERMES, [answer], most=1) == ("", [("add", '{"a": 0}')])


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        ("{% if tools %}<tools>{{ '<tool_call>' }}", HERMES),
        ("{{ '[TOOL_CALLS] [' }}", MISTRAL),
        ('ipython {"name": x, "parameters": y}', LLAMA),
        ("<tool_call>\n<function=x>", None),
        ("<tool_call>\n<function=x>\n<parameter=y>", TAGGED),
        ("{{ messages }}", None),
    ],
)
def test_the_format_of_calls_is_read_from_the_template(template: str, expected: ToolFormat | None) -> None:
    assert format_of(template) is expected
