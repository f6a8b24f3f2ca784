"""Thoughts, text and calls of an answer are the same however its text comes in pieces."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtimes.llm.text.answer_parser import (
    FORMATS,
    AnswerParser,
    Part,
    ThinkFormat,
    ThinkParser,
    Thought,
    think_format_of,
)
from runtimes.llm.text.tool_parser import HERMES, LLAMA, MISTRAL, AnswerText, CallArguments, CallBegun, ToolParser

pytestmark = pytest.mark.plain
CALL = '<tool_call>\n{"name": "now", "arguments": {"a": [1, "}"]}}\n</tool_call>'
PIECES = [
    "<think>", "</think>", "<thi", "nk>", "</", "[THINK]", "[/THINK]", "\n", " ", "hm", "é😀", CALL, "<tool_call>",
    "[TOOL_CALLS]", '[{"name": "now", "arguments": {}}]', '{"name": "now", "parameters": {}}', "{", "}", "<", "[",
]  # fmt: skip
texts = st.lists(st.sampled_from(PIECES), max_size=10).map("".join)


def parser(form: ThinkFormat | None, is_open: bool, tools: str) -> AnswerParser:
    formats = {form.name: form for form in (HERMES, MISTRAL, LLAMA)}
    think = None if form is None else ThinkParser(form, is_open=is_open)
    return AnswerParser(think, ToolParser(formats[tools], {"now"}) if tools else None)


def merged(parts: list[Part]) -> tuple[str, str, list[tuple[str, str]]]:
    """All thoughts, all text, and all calls."""
    calls: list[tuple[str, str]] = []
    for part in parts:
        if isinstance(part, CallBegun):
            calls.append((part.name, ""))
        elif isinstance(part, CallArguments):
            calls[-1] = (calls[-1][0], calls[-1][1] + part.text)
    thought = "".join([part.text for part in parts if isinstance(part, Thought)])
    return thought, "".join([part.text for part in parts if isinstance(part, AnswerText)]), calls


@given(
    text=texts,
    cuts=st.lists(st.integers(0, 200), max_size=12),
    form=st.sampled_from([None, *FORMATS]),
    is_open=st.booleans(),
    tools=st.sampled_from(["", "hermes", "mistral", "llama"]),
)
def test_any_pieces_of_a_text_have_its_parts(
    text: str, cuts: list[int], form: ThinkFormat | None, is_open: bool, tools: str
) -> None:
    whole = parser(form, is_open, tools)
    expected = merged([*whole.push(text), *whole.finish()])
    for places in (sorted({min(cut, len(text)) for cut in cuts}), range(1, len(text))):
        split = parser(form, is_open, tools)
        parts: list[Part] = []
        for start, end in zip([0, *places], [*places, len(text)], strict=True):
            parts += split.push(text[start:end])
        assert merged([*parts, *split.finish()]) == expected
        assert split.num_calls == whole.num_calls


@given(text=texts, is_open=st.booleans())
def test_nothing_but_marks_and_white_space_is_lost(text: str, is_open: bool) -> None:
    think = ThinkParser(FORMATS[0], is_open=is_open)
    parts = [*think.push(text), *think.finish()]
    joined = "".join([part.text for part in parts])
    lost = text.replace("<think>", "", 1) if text.lstrip().startswith("<think>") else text
    if not is_open and lost is text:
        assert joined == text
        return
    lost = lost.replace("</think>", "", 1)
    assert "".join(joined.split()) == "".join(lost.split())


@pytest.mark.parametrize(
    ("text", "is_open", "thought", "content"),
    [
        ("<think>\nWell.\n</think>\n\nHi.", False, "Well.", "Hi."),
        ("Well.\n</think>\n\nHi.", True, "Well.", "Hi."),
        ("<think>Well.</think>Hi.", True, "Well.", "Hi."),
        ("<think>\n\n</think>\n\nHi.", False, "", "Hi."),
        ("Hi. <think>no</think>", False, "", "Hi. <think>no</think>"),
        ("\n Hi.", False, "", "\n Hi."),
        ("<think>Well", False, "Well", ""),
        ("<think>a < b </thin", False, "a < b </thin", ""),
        ("<thin", False, "", "<thin"),
        ("Well", True, "Well", ""),
        ("", True, "", ""),
    ],
)
def test_where_a_thought_begins_and_ends(text: str, is_open: bool, thought: str, content: str) -> None:
    think = parser(FORMATS[0], is_open, "")
    assert merged([*think.push(text), *think.finish()]) == (thought, content, [])


def test_a_call_in_a_thought_is_none() -> None:
    both = parser(FORMATS[0], True, "hermes")
    thought, content, calls = merged([*both.push(f"I could {CALL}</think>So: {CALL}"), *both.finish()])
    assert (thought, content) == (f"I could {CALL}", "So:")
    assert [(name, json.loads(arguments)) for name, arguments in calls] == [("now", {"a": [1, "}"]})]


def test_the_format_is_that_of_the_template() -> None:
    assert think_format_of("{{ '<think>' }}") == FORMATS[0]
    assert think_format_of("{{ content.split('</think>') }}") == FORMATS[0]
    assert think_format_of("[THINK]") == FORMATS[1]
    assert think_format_of("{{ messages }}") is None
