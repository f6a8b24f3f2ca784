"""Grammars: they limit any model's text to what they allow, and each is bounded."""

import asyncio
import contextlib
import json
import os
import random
import signal
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adapters.errors import CapacityError, Unavailable
from runtimes.llm.grammar import build as grammar_build
from runtimes.llm.grammar import constraint as module
from runtimes.llm.grammar import sandbox
from runtimes.llm.grammar.build import Kind
from runtimes.llm.grammar.constraint import Compiled, Grammar, GrammarInvalid, Grammars
from runtimes.llm.grammar.json_schema import of_schema
from tests.runtimes.llm.babbler import END, VOCAB, allowed, babble
from tests.runtimes.llm.schemas import schemas
from tests.support.byte_tokenizer import byte_tokenizer

pytestmark = pytest.mark.processes


def grammars() -> Grammars:
    return Grammars(byte_tokenizer(), VOCAB, frozenset({END}))


@pytest.fixture(scope="module", autouse=True)
def shared() -> Iterator[None]:
    """One runtime's grammars for all tests that only compile."""
    global _runner, _grammars
    with asyncio.Runner() as _runner:
        _grammars = grammars()
        yield
        _grammars.close()


_runner: asyncio.Runner
_grammars: Grammars


def compiled(grammar: Grammar) -> Compiled:
    return _runner.run(_grammars.compiled(grammar))


@settings(max_examples=40, deadline=None)
@given(schema=schemas(), seed=st.integers(0, 2**32))
def test_every_finished_answer_matches_its_schema(schema: dict[str, Any], seed: int) -> None:
    text = babble(compiled(of_schema(schema, "schema", strict=True)).start(), random.Random(seed))
    if text is not None:
        jsonschema.validate(json.loads(text), schema)


@pytest.mark.parametrize("seed", range(5))
def test_any_object_is_an_object(seed: int) -> None:
    text = babble(compiled(of_schema({"type": "object"}, "response_format")).start(), random.Random(seed))
    assert text is None or isinstance(json.loads(text), dict)


def test_no_answer_goes_on_with_white_space() -> None:
    matcher = compiled(of_schema({"type": "object"}, "response_format")).start()
    for character in "{\n":
        matcher.advance(byte_tokenizer().encode(character)[0])
    indent = byte_tokenizer().encode(" ")[0]
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
        assert END in allowed(rules.start(byte_tokenizer().encode(text)))
    for text in wrong:
        with contextlib.suppress(GrammarInvalid):
            assert END not in allowed(rules.start(byte_tokenizer().encode(text)))


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
def test_the_error_of_an_invalid_grammar_has_the_reason(grammar: Grammar, why: str) -> None:
    with pytest.raises(GrammarInvalid, match=why) as refused:
        compiled(grammar)
    assert refused.value.param == "schema"
    assert "`schema`" in refused.value.message


def test_a_keyword_that_cannot_be_held_to_is_passed_over_unless_strict() -> None:
    rules = compiled(of_schema({"type": "array", "uniqueItems": True, "items": {"type": "integer"}}, "schema"))
    assert END in allowed(rules.start(byte_tokenizer().encode("[1, 1]")))


def test_a_grammar_too_costly_for_a_step_fails_the_answer() -> None:
    """A mask is made in any case; the token that is chosen by it is then refused."""
    rules = compiled(of_schema({"type": "string", "pattern": "^(.{1,1000}){1,1000}$"}, "schema"))
    matcher = rules.start()
    with pytest.raises(GrammarInvalid, match="failed"):  # noqa: PT012 - whichever token it is
        for _ in range(50):
            matcher.advance(allowed(matcher)[-1])


def test_answers_do_not_share_their_places() -> None:
    rules = compiled(Grammar("choice", '["ab","cd"]', "choice"))
    one, other = rules.start(), rules.start()
    one.advance(byte_tokenizer().encode("a")[0])
    assert allowed(one) == byte_tokenizer().encode("b")
    assert sorted(allowed(other)) == sorted(byte_tokenizer().encode("ac"))
    assert allowed(rules.start(byte_tokenizer().encode("c"))) == byte_tokenizer().encode("d")


@pytest.fixture
def made() -> Iterator[Grammars]:
    """A runtime's grammars of the test's own."""
    made = grammars()
    yield made
    made.close()


@pytest.fixture
def built(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Texts of the grammars that were built for use."""
    texts: list[str] = []

    def build(tokenizer: Any, kind: Kind, text: str) -> Any:
        texts.append(text)
        return grammar_build.build(tokenizer, kind, text)

    monkeypatch.setattr(module, "build", build)
    return texts


async def test_a_grammar_is_compiled_once_and_the_oldest_is_forgotten(
    made: Grammars, built: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_CACHED", 2)
    many = [Grammar("regex", "a", "regex")] * 8
    first, *others = await asyncio.gather(*map(made.compiled, many))
    assert all(other is first for other in others)
    assert built == ["a"]
    for text in "bca":
        await made.compiled(Grammar("regex", text, "regex"))
    assert built == ["a", "b", "c", "a"]


async def test_cached_grammars_are_bounded_in_bytes(
    made: Grammars, built: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_CACHED_BYTES", 1)
    for text in "aaba":
        await made.compiled(Grammar("regex", text, "regex"))
    assert built == ["a", "b", "a"]


async def test_a_schema_that_never_compiles_is_ended_and_then_refused_at_once(
    made: Grammars, built: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sandbox, "CPU_SECONDS", 0.3)
    endless = of_schema({"type": "integer", "multipleOf": 9999991}, "response_format")
    for param in ("response_format", "structured_outputs"):
        with pytest.raises(GrammarInvalid, match=f"`{param}` cannot be compiled: it takes more than") as caught:
            await made.compiled(replace(endless, param=param))
        assert caught.value.param == param
        monkeypatch.setattr(made._sandbox, "cost", None)  # the second answer comes from the cache
    assert built == []


@pytest.mark.parametrize("seed", range(int(os.environ.get("HEADRACE_FUZZ_GRAMMARS", "12"))))
def test_whatever_a_grammar_costs_its_compilation_ends(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Numbers and repetitions of any size do not exhaust the runtime's memory."""
    monkeypatch.setattr(sandbox, "CPU_SECONDS", 0.2)
    hostile = _hostile(random.Random(seed))
    before = resident()
    with contextlib.suppress(GrammarInvalid):
        compiled(hostile)
    assert resident() - before < sandbox.MEMORY


def _hostile(chance: random.Random) -> Grammar:
    most = 10 ** chance.randint(1, 9)
    number, other = chance.randint(1, most), chance.randint(1, most)
    whole: dict[str, Any] = chance.choice(
        [
            {"type": "integer", "multipleOf": number},
            {"type": "integer", "minimum": number, "maximum": number + other, "multipleOf": other % 1000 + 1},
            {"type": "integer", "allOf": [{"multipleOf": number}, {"multipleOf": other}]},
            {"type": "number", "multipleOf": number / 1000},
            {"type": "string", "minLength": number, "maxLength": number + other},
            {"type": "string", "pattern": f"^(a|b)*a(a|b){{{number % 1000}}}(c|d)*$"},
            {"type": "string", "pattern": f"^(.{{1,{number % 5000}}}x){{1,{other % 5000}}}$"},
            {"type": "array", "items": {"type": "integer"}, "minItems": number, "maxItems": number + other},
            {"enum": [f"{i * other}" for i in range(number % 20_000 + 1)]},
        ]
    )
    depth = chance.randint(0, 30)
    for _ in range(depth):
        whole = chance.choice([{"type": "array", "items": whole}, {"anyOf": [whole, {"type": "null"}]}])
    return of_schema(whole, "schema", strict=True)


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")


async def test_a_grammar_that_takes_too_much_memory_is_ended(made: Grammars, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sandbox, "MEMORY", 8 << 20)
    with pytest.raises(GrammarInvalid, match="MiB of memory"):
        await made.compiled(of_schema({"type": "integer", "multipleOf": 9999991}, "schema"))
    assert await made.compiled(Grammar("regex", "a", "regex"))


async def test_the_refusals_that_are_remembered_are_bounded(made: Grammars, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_REFUSED", 3)
    for number in range(6):
        with pytest.raises(GrammarInvalid):
            await made.compiled(Grammar("regex", "(" * (number + 1), "regex"))
    assert len(made._refused) == 3


async def test_one_tenants_slow_grammars_do_not_hold_up_another(made: Grammars) -> None:
    """Tenant a's wait for each other, and the last ones are turned away."""
    schemas = [of_schema({"type": "integer", "multipleOf": 9999991 + n}, "schema") for n in range(20)]
    slow = [asyncio.ensure_future(made.compiled(schema, "a")) for schema in schemas]
    async with asyncio.timeout(300):
        await made.compiled(Grammar("regex", "a", "regex"), "b")
    assert not slow[0].done()
    ended = [task for task in slow if task.done()]
    assert ended
    for task in ended:
        assert isinstance(task.exception(), CapacityError)
    made.close()
    await asyncio.gather(*slow, return_exceptions=True)


async def test_a_caller_that_leaves_frees_no_turn_before_the_work_has_ended(
    made: Grammars, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sandbox, "CPU_SECONDS", 0.5)
    endless = of_schema({"type": "integer", "multipleOf": 9999991}, "schema")
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.01):
            await made.compiled(endless, "a")
    assert len(made._under_way) == 1
    assert await made.compiled(Grammar("regex", "a", "regex"), "a")  # after the first one
    assert made._under_way == {}
    assert endless.key in made._refused


async def test_a_worker_that_is_killed_is_replaced(made: Grammars) -> None:
    await made.compiled(Grammar("regex", "a", "regex"))
    end = made._sandbox._end
    assert end is not None
    (_, _, (process, _), _) = end.peek() or (None, None, (None, None), None)
    assert process is not None
    os.killpg(process.pid, signal.SIGKILL)
    with pytest.raises(Unavailable):
        await made.compiled(Grammar("regex", "b", "regex"))
    assert await made.compiled(Grammar("regex", "b", "regex"))
