"""Grammars: whatever a model would say, it can only say what they allow, and each is bounded."""

import asyncio
import contextlib
import json
import random
import threading
from collections.abc import Sequence
from functools import cache
from typing import Any

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adapters.errors import CapacityError
from runtimes.llm import grammar as module
from runtimes.llm.after_mark import Rules
from runtimes.llm.answer_format import of_schema
from runtimes.llm.grammar import Compiled, Grammar, GrammarInvalid, Grammars
from tests.runtimes.llm.schemas import schemas
from tests.runtimes.llm.server_fixtures import byte_tokenizer

VOCAB = 264  # the model's is padded
END = 257
LIKELY = b'"}],:{[0123456789 '


@cache
def tokenizer() -> Any:
    return byte_tokenizer()


def grammars() -> Grammars:
    return Grammars(tokenizer(), VOCAB, frozenset({END}))


def compiled(grammar: Grammar) -> Compiled:
    return asyncio.run(grammars().compiled(grammar))


def allowed(matcher: Rules) -> list[int]:
    mask = matcher.mask()
    return [id for id in range(min(VOCAB, 8 * len(mask))) if mask[id // 8] >> id % 8 & 1]


def babble(matcher: Rules, chance: random.Random, *, most: int = 4000) -> str | None:
    """What a model without any sense says; None if it does not end."""
    said: list[int] = []
    likely = set(tokenizer().encode(LIKELY.decode())) | {END}
    while len(said) < most:
        may = allowed(matcher)
        better = [id for id in may if id in likely]
        token_id = chance.choice(better if better and chance.random() < 0.7 else may)
        matcher.advance(token_id)
        if token_id == END:
            return b"".join(tokenizer().piece(id) for id in said).decode()
        said.append(token_id)
    return None


@settings(max_examples=40, deadline=None)
@given(schema=schemas(), seed=st.integers(0, 2**32))
def test_whatever_the_model_what_it_ends_is_of_the_schema(schema: dict[str, Any], seed: int) -> None:
    said = babble(compiled(of_schema(schema, "schema", strict=True)).start(), random.Random(seed))
    if said is not None:
        jsonschema.validate(json.loads(said), schema)


@pytest.mark.parametrize("seed", range(5))
def test_any_object_is_an_object(seed: int) -> None:
    said = babble(compiled(of_schema({"type": "object"}, "response_format")).start(), random.Random(seed))
    assert said is None or isinstance(json.loads(said), dict)


def test_no_answer_goes_on_with_white_space() -> None:
    matcher = compiled(of_schema({"type": "object"}, "response_format")).start()
    for character in "{\n":
        matcher.advance(tokenizer().encode(character)[0])
    indent = tokenizer().encode(" ")[0]
    spaces = 0
    while indent in allowed(matcher):
        matcher.advance(indent)
        spaces += 1
    assert 0 < spaces < 100


@pytest.mark.parametrize(
    ("grammar", "right", "wrong"),
    [
        (Grammar("regex", "[a-c]{2}\\d", "regex"), ["ab1", "cc9"], ["ab", "abc", "ad1"]),
        (Grammar("choice", '["yes","no","nö\\n"]', "choice"), ["yes", "no", "nö\n"], ["ye", "yes!", "maybe"]),
        (Grammar("grammar", 'start: "a"+ "b"', "grammar"), ["ab", "aaab"], ["b", "a"]),
        (Grammar("grammar", 'root ::= "a" [0-9]+', "grammar"), ["a1", "a99"], ["a", "1"]),
        (of_schema({"enum": ["x", 7]}, "schema"), ['"x"', "7"], ["x", "8", "77"]),
    ],
)
def test_kinds_of_grammar(grammar: Grammar, right: Sequence[str], wrong: Sequence[str]) -> None:
    rules = compiled(grammar)
    for text in right:
        assert END in allowed(rules.start(tokenizer().encode(text)))
    for text in wrong:
        with contextlib.suppress(GrammarInvalid):
            assert END not in allowed(rules.start(tokenizer().encode(text)))


@pytest.mark.parametrize(
    ("grammar", "why"),
    [
        (of_schema({"type": "strnig"}, "schema"), "strnig"),
        (of_schema({"$ref": "#/$defs/missing"}, "schema"), "missing"),
        (of_schema({"minimum": 7, "maximum": 3, "type": "integer"}, "schema"), "Unsatisfiable"),
        (of_schema({"type": "array", "uniqueItems": True}, "schema", strict=True), "uniqueItems"),
        (Grammar("regex", "[a-z", "schema"), "unclosed"),
        (Grammar("regex", "(?=a)b", "schema"), "look-around"),
        (Grammar("grammar", "start: nothing", "schema"), "nothing"),
        (Grammar("grammar", "root ::= (", "schema"), "GBNF"),
        (Grammar("choice", json.dumps(["x" * 1000] * 300), "schema"), "characters"),
    ],
)
def test_what_cannot_be_compiled_says_why(grammar: Grammar, why: str) -> None:
    with pytest.raises(GrammarInvalid, match=why) as refused:
        compiled(grammar)
    assert refused.value.param == "schema"
    assert "`schema`" in refused.value.message


def test_a_keyword_that_cannot_be_held_to_is_passed_over_unless_strict() -> None:
    rules = compiled(of_schema({"type": "array", "uniqueItems": True, "items": {"type": "integer"}}, "schema"))
    assert END in allowed(rules.start(tokenizer().encode("[1, 1]")))


def test_what_is_too_much_for_a_step_fails_and_does_not_end_well() -> None:
    """A mask is made in any case; the token that is chosen by it is then refused."""
    rules = compiled(of_schema({"type": "string", "pattern": "^(.{1,1000}){1,1000}$"}, "schema"))
    matcher = rules.start()
    with pytest.raises(GrammarInvalid, match="failed"):  # noqa: PT012 - whichever token it is
        for _ in range(50):
            matcher.advance(allowed(matcher)[-1])


def test_answers_do_not_share_their_places() -> None:
    rules = compiled(Grammar("choice", '["ab","cd"]', "choice"))
    one, other = rules.start(), rules.start()
    one.advance(tokenizer().encode("a")[0])
    assert allowed(one) == tokenizer().encode("b")
    assert sorted(allowed(other)) == sorted(tokenizer().encode("ac"))
    assert allowed(rules.start(tokenizer().encode("c"))) == tokenizer().encode("d")


async def test_a_grammar_is_compiled_once_and_the_oldest_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_KEPT", 2)
    counted: list[str] = []
    made = grammars()
    compile_ = made._compile

    def counting(grammar: Grammar) -> Any:
        counted.append(grammar.text)
        return compile_(grammar)

    monkeypatch.setattr(made, "_compile", counting)
    many = [Grammar("regex", "a", "regex")] * 8
    first, *others = await asyncio.gather(*map(made.compiled, many))
    assert all(other is first for other in others)
    assert counted == ["a"]
    for text in "bca":
        await made.compiled(Grammar("regex", text, "regex"))
    assert counted == ["a", "b", "c", "a"]


async def test_compiling_has_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is told to the one who asked for it, and those behind wait no longer for it than for their own."""
    made, go_on = grammars(), threading.Event()
    compile_ = made._compile
    monkeypatch.setattr(module, "COMPILE_SECONDS", 0.05)
    monkeypatch.setattr(module, "MAX_WAITING", 1)
    monkeypatch.setattr(made, "_compile", lambda grammar: (go_on.wait(30), compile_(grammar))[1])
    slow = asyncio.ensure_future(made.compiled(Grammar("regex", "a", "regex")))
    await asyncio.sleep(0)
    with pytest.raises(CapacityError):
        await made.compiled(Grammar("regex", "b", "regex"))
    with pytest.raises(GrammarInvalid, match="too long"):
        await slow
    go_on.set()
    monkeypatch.setattr(module, "COMPILE_SECONDS", 30)
    assert await made.compiled(Grammar("regex", "b", "regex"))
