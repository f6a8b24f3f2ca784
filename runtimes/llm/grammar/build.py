"""llguidance's matcher of a grammar, for one vocabulary (https://github.com/guidance-ai/llguidance).

The runtime and its sandbox of grammars build with the same functions of the vocabulary alone. So a grammar costs both
the same, and one that passes there builds here.

llguidance would force its own tokens for a text that a grammar leaves no choice of. The model's tokenizer is no help
for them: many put a space in front of a text, which the grammar does not allow there. So the model may spell it freely.
"""

import json
import logging
import re
from typing import Literal

import msgspec
from llguidance import LLMatcher, LLParserLimits, LLTokenizer, TokenizerWrapper, grammar_from

# The cost of one step: some 5 ms at the most where a text is met for the first time, 0.05 ms as a rule.
_LIMITS = LLParserLimits(step_lexer_fuel=100_000, max_lexer_states=50_000, verbose_errors=False)

_FREELY = '%llguidance {"no_forcing": true}'
_OWN_OPTIONS = re.compile(r"%llguidance\s*\{\s*[^\s}]")
Kind = Literal["json_schema", "regex", "choice", "grammar", "lark"]
log = logging.getLogger(__name__)


class Vocabulary(msgspec.Struct, frozen=True):
    """`tokens` by id; control tokens by their spelling, which no text can be. Any of `ends` ends an answer."""

    tokens: list[bytes]
    control: list[int]
    ends: list[int]

    def tokenizer(self) -> LLTokenizer:
        """As llguidance reads the vocabulary, a second's work for the largest."""
        return LLTokenizer(
            TokenizerWrapper(_Tokens(self)), n_vocab=len(self.tokens), eos_token=self.ends,
            slices=LLTokenizer.json_slices(),
        )  # fmt: skip


class LongestTokens:
    """Spells texts, from left to right with the longest token that fits. Control tokens spell nothing."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        control = set(vocabulary.control)
        self._ids = {piece: id for id, piece in enumerate(vocabulary.tokens) if piece and id not in control}
        self._longest = max(map(len, self._ids), default=0)

    def spelled(self, text: bytes) -> list[int] | None:
        """Tokens that are `text` together; None if there are none."""
        token_ids, start = [], 0
        while start < len(text):
            ends = range(min(len(text), start + self._longest), start, -1)
            end = next((end for end in ends if text[start:end] in self._ids), None)
            if end is None:
                return None
            token_ids.append(self._ids[text[start:end]])
            start = end
        return token_ids


class CannotBuild(ValueError):
    """The grammar is not valid, or exceeds llguidance's limits; the message is the reason."""


def build(tokenizer: LLTokenizer, kind: Kind, text: str) -> LLMatcher:
    """The matcher at the start of an answer. Raises CannotBuild."""
    try:
        matcher = LLMatcher(tokenizer, _source(kind, text), log_level=0, limits=_LIMITS)
    except ValueError as error:
        raise CannotBuild(_readable(str(error))) from None
    # The first mask is the dearest, and some grammars fail only there.
    first = matcher.deep_copy()
    first.compute_bitmask()
    for tried in (matcher, first):
        if tried.is_error():
            raise CannotBuild(reason(tried))
    return matcher


def reason(matcher: LLMatcher) -> str:
    """The reason for which the matcher failed."""
    return _readable(matcher.get_error())


def _readable(error: str) -> str:
    """An error in one line. A fault of the library, with the places of its source files, is only logged."""
    if "panic" in error or "<backtrace>" in error:
        log.error("llguidance failed: %s", error)
        return "the library that compiles grammars failed on it"
    return " ".join(error.partition("<non-verbose/>")[0].split())


def _source(kind: Kind, text: str) -> str:
    """The grammar as Lark, with options for llguidance. Raises ValueError."""
    if kind == "json_schema":
        lark = f"start: %json {text}"
    elif kind == "choice":
        options = " | ".join([json.dumps(option) for option in json.loads(text)])
        lark = f"start: OPTION\nOPTION: {options}"  # a terminal has no limit of branches
    elif kind == "regex":
        lark = json.loads(grammar_from("regex", text))["grammars"][0]["lark_grammar"]
    else:
        lark = grammar_from(kind, text)
    # The last options apply: those of the grammar itself, if it has any.
    return lark if _OWN_OPTIONS.search(lark) else f"{lark}\n{_FREELY}"


class _Tokens:
    """The names that `TokenizerWrapper` reads."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.tokens = vocabulary.tokens
        self.special_token_ids = vocabulary.control
        self.eos_token_id = vocabulary.ends[0]
        self.bos_token_id = None
        self._longest = LongestTokens(vocabulary)

    def __call__(self, text: bytes) -> list[int]:
        return self._longest.spelled(text) or []
