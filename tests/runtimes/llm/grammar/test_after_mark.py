"""Free text before the rules: any bytes may come, and after the mark the rules hold."""

import asyncio
import json
import random
from functools import cache
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runtimes.llm.api.tools import ToolFunction, calls_grammar
from runtimes.llm.grammar.constraint import AfterMark, Compiled, Grammars, Mark
from runtimes.llm.grammar.json_schema import of_schema
from runtimes.llm.grammar.think_rules import ThoughtRules
from runtimes.llm.text.answer_parser import ThinkFormat, ThinkParser
from runtimes.llm.text.tokenizer import Tokenizer
from runtimes.llm.text.tool_parser import HERMES, MISTRAL, AnswerText, ToolFormat, ToolParser
from tests.runtimes.llm.server_fixtures import Parrot, post, serving
from tests.support.byte_tokenizer import CHATML, byte_tokenizer
from tests.support.tool_calls import CHAT, KNOWING

pytestmark = pytest.mark.processes
LONG = [">\n", ">\n\n", "call>\n{", "<tool_call>\nx", "x<tool_call>", "<tool", "_call", "S][", "S]x", "[TOOL_CALLS][{"]
FORMATS = {"hermes": HERMES, "mistral": MISTRAL}
THINK = ThinkFormat("<think>", "</think>")


@cache
def tokenizer(control: bool) -> Tokenizer:
    """Single bytes, tokens that hold parts of marks, and the marks themselves, which may be control tokens."""
    return byte_tokenizer(LONG, ("<tool_call>", "[TOOL_CALLS]"), control)


@cache
def thinking_tokenizer(control: bool) -> Tokenizer:
    """The same for thoughts."""
    parts = ["<thi", "nk>\n", "nk>", "</thi", "</", "nk>{", "think>", ">\n\n", ">{", '{"x', "<th"]
    return byte_tokenizer(parts, THINK, control)


@cache
def rules(name: str, control: bool) -> Compiled:
    vocabulary = tokenizer(control)
    function = ToolFunction("now", {"type": "object", "properties": {}, "additionalProperties": False})
    grammar = calls_grammar(FORMATS[name], [function], vocabulary, parallel=False, after_text=True)
    return asyncio.run(Grammars(vocabulary, len(vocabulary.pieces), vocabulary.eos_token_ids).compiled(grammar))


def text_of(vocabulary: Tokenizer, token_ids: list[int]) -> bytes:
    spelled = {id: text.encode() for text, id in vocabulary.special_tokens.items()}
    return b"".join([vocabulary.piece(id) or spelled[id] for id in token_ids])


@pytest.mark.parametrize("control", [False, True])
@pytest.mark.parametrize("name", FORMATS)
def test_any_tokens_are_allowed_and_a_mark_begins_a_call(name: str, control: bool) -> None:
    vocabulary, form = tokenizer(control), FORMATS[name]
    marks = [id for id, piece in vocabulary.pieces.items() if not piece or form.trigger.encode().startswith(piece[:1])]

    @given(seed=st.integers(0, 2**32))
    @settings(deadline=None, max_examples=60)
    def walk(seed: int) -> None:
        chance, matcher, token_ids = random.Random(seed), rules(name, control).start(), list[int]()
        while len(token_ids) < 120:
            allowed = range(len(vocabulary.pieces))
            if not matcher.free:
                mask = matcher.mask()
                allowed = [id for id in allowed if mask[id // 8] >> id % 8 & 1]  # type: ignore[assignment]
            likely = [id for id in allowed if id in marks]
            token_id = chance.choice(likely if likely and chance.random() < 0.6 else allowed)
            if token_id == 257:
                break
            matcher.advance(token_id)
            token_ids.append(token_id)
        else:
            return
        # A token may hold more than the mark and no call after it: then all of it is text.
        text = text_of(vocabulary, token_ids).decode("utf-8", "replace")
        parser = ToolParser(form, {"now"}, most=1)
        parts = parser.push(text) + parser.finish()
        spoiled = any(
            form.trigger.encode() in vocabulary.piece(id) and vocabulary.piece(id)[-1:] == b"x" for id in token_ids
        )
        if form.trigger in text and not spoiled:
            assert parser.num_calls == 1, text
        elif form.trigger not in text:
            assert "".join([part.text for part in parts if isinstance(part, AnswerText)]) == text

    walk()


@given(token_ids=st.lists(st.integers(0, 255), max_size=60))
@settings(deadline=None)
def test_bytes_that_are_no_text_fail_no_answer(token_ids: list[int]) -> None:
    for name in FORMATS:
        matcher = rules(name, False).start()
        for token_id in token_ids:
            assert matcher.free or matcher.mask()[token_id // 8] >> token_id % 8 & 1
            matcher.advance(token_id)


def test_without_rules_everything_may_follow_the_mark() -> None:
    vocabulary = tokenizer(False)
    place = AfterMark(Mark("</think>", vocabulary), None, 40)
    for token_id in vocabulary.encode("a</thi</think>\xff"):
        assert place.free
        place.advance(token_id)


@pytest.mark.parametrize("form", [HERMES, MISTRAL])
async def test_an_answer_with_tools_may_hold_broken_characters(form: ToolFormat) -> None:
    vocabulary = byte_tokenizer()
    broken = [
        next(id for id, piece in vocabulary.pieces.items() if piece == byte) for byte in (b"\xff", b"\xe4", b"\xb8")
    ]
    template = KNOWING if form is HERMES else "[TOOL_CALLS]" + CHATML
    async with serving(runner=Parrot([*broken, *vocabulary.encode("so")] * 3), template=template) as running:
        plain: Any = None
        several: list[Any] = [[], CHAT["tools"]]
        for tools in several:
            status, _, answer = await post(running, "/v1/chat/completions", CHAT | {"tools": tools})
            assert status == 200, answer
            plain = plain or answer["choices"][0]["message"]["content"]
            assert answer["choices"][0]["message"]["content"] == plain


# ── thoughts ──────────────────────────────────────────────────────────────────────────────────────────


@cache
def answer_rules(control: bool) -> Compiled:
    vocabulary = thinking_tokenizer(control)
    schema = {"type": "object", "properties": {"x": {"enum": [1]}}, "required": ["x"], "additionalProperties": False}
    grammars = Grammars(vocabulary, len(vocabulary.pieces), vocabulary.eos_token_ids)
    return asyncio.run(grammars.compiled(of_schema(schema, "schema", strict=True)))


@pytest.mark.parametrize("control", [False, True])
@pytest.mark.parametrize("held", [False, True])
def test_any_thought_ends_within_its_budget_and_the_answer_follows_its_form(held: bool, control: bool) -> None:
    vocabulary = thinking_tokenizer(control)
    marks = "".join(THINK).encode() + b'{"x":1}'
    likely = [
        id
        for id in range(len(vocabulary.pieces))
        if not vocabulary.piece(id) or vocabulary.piece(id)[:1] in map(_byte, marks)
    ]

    @given(seed=st.integers(0, 2**32), is_open=st.booleans(), budget=st.none() | st.integers(0, 6))
    @settings(deadline=None, max_examples=60)
    def walk(seed: int, is_open: bool, budget: int | None) -> None:
        width = (len(vocabulary.pieces) + 7) // 8
        thoughts = ThoughtRules(format=THINK, is_open=is_open, budget=budget, tokenizer=vocabulary, width=width)
        place = thoughts.start(answer_rules(control).start if held else lambda: None)
        if place is None:
            assert not held
            assert budget is None
            return
        chance, token_ids, in_thought = random.Random(seed), list[int](), 0
        think = ThinkParser(THINK, is_open=is_open)
        for _ in range(150):
            mask = b"\xff" * width if place.free else place.mask()
            allowed = [id for id in range(len(vocabulary.pieces)) if mask[id // 8] >> id % 8 & 1]
            assert allowed
            likely_now = [id for id in allowed if id in likely]
            token_id = chance.choice(likely_now if likely_now and chance.random() < 0.7 else allowed)
            if token_id == 257:
                break
            place.advance(token_id)
            token_ids.append(token_id)
            think.push(text_of(vocabulary, [token_id]).decode("latin-1"))
            in_thought += think.thinks
            # The end of the thought is a new line and its mark, in one token or several.
            assert budget is None or in_thought <= budget + 12
        else:
            return
        parser = ThinkParser(THINK, is_open=is_open)
        parts = [*parser.push(text_of(vocabulary, token_ids).decode("latin-1")), *parser.finish()]
        answer = "".join([part.text for part in parts if isinstance(part, AnswerText)])
        if held and answer and not parser.thinks:
            assert json.loads(answer) == {"x": 1}

    walk()


def _byte(value: int) -> bytes:
    return bytes([value])
