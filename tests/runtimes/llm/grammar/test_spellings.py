"""Every text that a grammar admits may be spelled by any tokens of the model, whatever its tokenizer puts in front."""

import json
import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runtimes.llm.api.tools import ToolFunction, calls_grammar
from runtimes.llm.grammar.build import CannotBuild, LongestTokens, build, reason
from runtimes.llm.grammar.constraint import Grammar, Grammars, Matcher, TextRules, vocabulary_of
from runtimes.llm.grammar.json_schema import of_schema
from runtimes.llm.text.tokenizer import Tokenizer
from runtimes.llm.text.tokenizer_loader import load_tokenizer
from runtimes.llm.text.tool_parser import HERMES, LLAMA, MISTRAL
from tests.runtimes.llm.babbler import END, VOCAB, babble
from tests.runtimes.llm.schemas import schemas
from tests.support.byte_tokenizer import byte_tokenizer
from tests.support.tokenizer_folders import LAYOUTS, write_tokenizer

NOW = ToolFunction(
    "now", {"type": "object", "properties": {"zone": {"enum": ["°C", "日本", " x"]}}, "required": ["zone"]}
)
GRAMMARS = {
    "object": of_schema({"type": "object"}, "schema"),
    "regex": Grammar("regex", "привет[0-9]{2} caf\u00e9", "regex"),
    "choice": Grammar("choice", '["positive", "negative", "été", " yes"]', "choice"),
    "lark": Grammar("grammar", 'start: "a" " b"+ | "\\"name\\": "', "grammar"),
    "own options": Grammar("grammar", '%llguidance {"allow_initial_skip": false}\nstart: "name" " it"', "grammar"),
    "gbnf": Grammar("grammar", 'root ::= "the " [a-z]+ "\\n"', "grammar"),
    **{form.name: calls_grammar(form, [NOW], byte_tokenizer(), parallel=True) for form in (HERMES, MISTRAL, LLAMA)},
}


def rules(tokenizer: Tokenizer, size: int, ends: frozenset[int], grammar: Grammar) -> TextRules:
    vocabulary = vocabulary_of(tokenizer, size, ends)
    matcher = build(vocabulary.tokenizer(), grammar.kind, grammar.text)
    return Matcher(matcher, (size + 7) // 8, LongestTokens(vocabulary))


@pytest.fixture(scope="module")
def tokenizers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Tokenizer]:
    return {name: load_tokenizer(write_tokenizer(tmp_path_factory.mktemp("tokenizer"), name)) for name in LAYOUTS}


def chance_spelling(tokenizer: Tokenizer, text: bytes, chance: random.Random) -> list[int]:
    token_ids: list[int] = []
    while text:
        fitting = [id for id, piece in tokenizer.pieces.items() if piece and text.startswith(piece)]
        token_ids.append(chance.choice(fitting))
        text = text[len(tokenizer.piece(token_ids[-1])) :]
    return token_ids


def check_admitted(start: TextRules, token_ids: list[int], end: int) -> None:
    for token_id in [*token_ids, end]:
        assert start.mask()[token_id // 8] >> token_id % 8 & 1
        if token_id != end:
            start.advance(token_id)


def check_everywhere(tokenizers: dict[str, Tokenizer], grammar: Grammar, seed: int) -> None:
    """A text of the grammar, byte by byte, is one of every tokenizer's."""
    text = babble(rules(byte_tokenizer(), VOCAB, frozenset({END}), grammar), random.Random(seed), 400)
    if text is None:
        return
    for name, tokenizer in tokenizers.items():
        natural = tokenizer.encode(text, continues=True)
        if "\ufffd" not in text:
            assert tokenizer.decode(natural) == text, name
        end = tokenizer.special_tokens["</s>"]
        for token_ids in (natural, chance_spelling(tokenizer, text.encode(), random.Random(seed))):
            check_admitted(rules(tokenizer, len(tokenizer.pieces), frozenset({end}), grammar), token_ids, end)


@pytest.mark.parametrize("name", GRAMMARS)
def test_every_text_of_a_grammar_is_admitted_in_any_spelling(tokenizers: dict[str, Tokenizer], name: str) -> None:
    if name == "own options":  # the forced text is of the longest tokens there
        for tokenizer in tokenizers.values():
            end = tokenizer.special_tokens["</s>"]
            start = rules(tokenizer, len(tokenizer.pieces), frozenset({end}), GRAMMARS[name])
            spelled = LongestTokens(vocabulary_of(tokenizer, len(tokenizer.pieces), frozenset({end}))).spelled(
                b"name it"
            )
            check_admitted(start, spelled or [], end)
        return
    for seed in range(4):
        check_everywhere(tokenizers, GRAMMARS[name], seed)


@settings(max_examples=25, deadline=None)
@given(schema=schemas(), seed=st.integers(0, 2**32))
def test_every_text_of_a_schema_is_admitted_in_any_spelling(
    tokenizers: dict[str, Tokenizer], schema: dict[str, object], seed: int
) -> None:
    check_everywhere(tokenizers, of_schema(schema, "schema"), seed)


@pytest.mark.processes
@pytest.mark.parametrize("name", LAYOUTS)
async def test_the_runtime_builds_every_grammar_after_its_sandbox(tokenizers: dict[str, Tokenizer], name: str) -> None:
    tokenizer = tokenizers[name]
    grammars = Grammars(tokenizer, len(tokenizer.pieces), tokenizer.eos_token_ids)
    try:
        for grammar in GRAMMARS.values():
            assert (await grammars.compiled(grammar)).start().mask()
    finally:
        grammars.close()


class Panicking:
    """A matcher of llguidance whose library has failed."""

    def get_error(self) -> str:
        return "panic: index out of range for slice of length 1 <backtrace> 0: /build/src/x.rs:12"


def test_a_panic_of_the_library_does_not_reach_clients(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    failed = reason(Panicking())  # type: ignore[arg-type]
    assert failed == "the library that compiles grammars failed on it"

    def panics(*arguments: object, **options: object) -> None:
        raise ValueError(Panicking().get_error())

    monkeypatch.setattr("runtimes.llm.grammar.build.LLMatcher", panics)
    with pytest.raises(CannotBuild) as refused:
        build(None, "choice", json.dumps(["a"]))  # type: ignore[arg-type]
    assert str(refused.value) == failed
