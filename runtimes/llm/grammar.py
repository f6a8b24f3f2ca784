"""What the text of an answer must be like, as a mask over the next token: llguidance's grammars
(https://github.com/guidance-ai/llguidance).

Grammar     the rules, as a request gives them: plain data
Grammars    compiles them for one model, each once, never on the event loop
Matcher     one answer's place in them: the `Constraint` of its sequence

A grammar is somebody's program, so all of it is bounded: its size, the work of compiling it and the work of each
step. What is too much fails for the request that brought it, and for no other.
"""

import asyncio
import json
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import blake2b
from typing import Literal

from llguidance import LLMatcher, LLParserLimits, LLTokenizer, TokenizerWrapper, grammar_from

from adapters.errors import CallerError, CapacityError
from runtimes.llm.after_mark import AfterMark, Rules, mark_of
from runtimes.llm.tokenizer import Tokenizer

MAX_CHARACTERS = 1 << 18
MAX_KEPT = 64
MAX_WAITING = 32
WAIT_SECONDS = COMPILE_SECONDS = 10.0

# What one step may cost: some 5 ms at the most where a text is met for the first time, 0.05 ms as a rule.
_LIMITS = LLParserLimits(step_lexer_fuel=100_000, max_lexer_states=50_000, verbose_errors=False)

Kind = Literal["json_schema", "regex", "choice", "grammar", "lark"]


class GrammarInvalid(CallerError):
    """It cannot be compiled, or came to be too much while an answer was written by it."""

    code = "invalid_grammar"


@dataclass(frozen=True, slots=True)
class Grammar:
    """`text` is JSON for a schema and for a choice, a list of texts; a `grammar` may be Lark's or GBNF.

    `param` is what the request called it.
    """

    kind: Kind
    text: str
    param: str
    after: str = ""
    """A text that comes before what the rules are for; until then any text may come."""

    @property
    def key(self) -> bytes:
        return blake2b(
            f"{self.kind}\n{self.after}\n{self.text}".encode(errors="surrogatepass"), digest_size=16
        ).digest()


class Matcher:
    """One answer's place in a grammar: the `Rules` of what it is."""

    __slots__ = ("_matcher", "_vocabulary", "_width")
    free = False

    def __init__(self, matcher: LLMatcher, width: int, vocabulary: "_Vocabulary") -> None:
        self._matcher = matcher
        self._width = width
        self._vocabulary = vocabulary

    def mask(self) -> bytes:
        """A bit a token, the lowest of a byte first: 1 for what may come next.

        A matcher that has failed lets an answer end, and `advance` says why it may not.
        """
        return self._matcher.compute_bitmask()[: self._width]

    def advance(self, token_id: int) -> None:
        """`token_id` has come. Raises GrammarInvalid if nothing can come of this any more."""
        # A failure while the mask was made shows here.
        if self._matcher.is_error() or not self._matcher.consume_token(token_id):
            raise GrammarInvalid(f"The answer's grammar has failed: {_reason(self._matcher)}.")

    def allows(self, text: bytes) -> bool:
        token_ids = self._vocabulary.spelled(text)
        return token_ids is not None and self._matcher.validate_tokens(token_ids) == len(token_ids)

    def take(self, text: bytes) -> None:
        for token_id in self._vocabulary.spelled(text) or ():
            self.advance(token_id)


class Compiled:
    """A grammar for one model."""

    def __init__(self, matcher: LLMatcher, width: int, vocabulary: "_Vocabulary", after: str) -> None:
        self._matcher = matcher
        self._width = width
        self._vocabulary = vocabulary
        self._after = mark_of(after, vocabulary.tokenizer) if after else None

    def start(self, said: Iterable[int] = ()) -> Rules:
        """A new answer's place, after what of it is `said`. Raises GrammarInvalid if that does not follow the rules."""
        # A copy shares what has been learnt of the grammar so far: each makes the next one faster.
        matcher = Matcher(self._matcher.deep_copy(), self._width, self._vocabulary)
        rules = matcher if self._after is None else AfterMark(self._after, matcher, self._width)
        for token_id in said:
            rules.advance(token_id)
        return rules


class Grammars:
    """Compiles for one model; the last `MAX_KEPT` are kept. It belongs to one event loop.

    `vocab_size` is the model's, which may be more than the tokenizer's. Of `eos_token_ids` any ends an answer.
    """

    def __init__(self, tokenizer: Tokenizer, vocab_size: int, eos_token_ids: frozenset[int]) -> None:
        self._vocabulary = _Vocabulary(tokenizer, vocab_size, eos_token_ids)
        self._tokenizer = LLTokenizer(
            TokenizerWrapper(self._vocabulary),
            n_vocab=vocab_size,
            eos_token=sorted(eos_token_ids),
            slices=LLTokenizer.json_slices(),
        )
        self._width = (vocab_size + 7) // 8
        self._kept: OrderedDict[bytes, Compiled] = OrderedDict()
        self._one = asyncio.Semaphore(1)
        self._waiting = 0

    @classmethod
    def of(cls, tokenizer: Tokenizer, vocab_size: int, eos_token_ids: frozenset[int]) -> "Grammars | None":
        """None if nothing ends an answer."""
        ends = tokenizer.eos_token_ids | eos_token_ids
        return cls(tokenizer, vocab_size, ends) if ends else None

    async def compiled(self, grammar: Grammar) -> Compiled:
        """Raises GrammarInvalid that says why, CapacityError if too many others are being compiled."""
        if len(grammar.text) > MAX_CHARACTERS:
            raise GrammarInvalid(f"`{grammar.param}` has more than {MAX_CHARACTERS} characters.", param=grammar.param)
        key = grammar.key
        if (found := self._find(key)) is not None:
            return found
        if self._waiting >= MAX_WAITING:
            raise CapacityError("Too many grammars are being compiled: try again later.")
        self._waiting += 1
        try:
            return await self._in_turn(key, grammar)
        finally:
            self._waiting -= 1

    def _find(self, key: bytes) -> Compiled | None:
        found = self._kept.get(key)
        if found is not None:
            self._kept.move_to_end(key)
        return found

    async def _in_turn(self, key: bytes, grammar: Grammar) -> Compiled:
        """One at a time, so that a grammar that many ask for at once is compiled once."""
        try:
            async with asyncio.timeout(WAIT_SECONDS):
                await self._one.acquire()
        except TimeoutError:
            raise CapacityError("Other grammars take long to compile: try again later.") from None
        try:
            if (found := self._find(key)) is not None:
                return found
            async with asyncio.timeout(COMPILE_SECONDS):
                matcher = await asyncio.to_thread(self._compile, grammar)
        except TimeoutError:
            raise GrammarInvalid(f"`{grammar.param}` takes too long to compile.", param=grammar.param) from None
        finally:
            self._one.release()
        self._kept[key] = compiled = Compiled(matcher, self._width, self._vocabulary, grammar.after)
        while len(self._kept) > MAX_KEPT:
            self._kept.popitem(last=False)
        return compiled

    def _compile(self, grammar: Grammar) -> LLMatcher:
        try:
            matcher = LLMatcher(self._tokenizer, _source(grammar), log_level=0, limits=_LIMITS)
        except ValueError as error:
            raise _invalid(grammar, str(error)) from None
        # The first mask is the dearest, and some grammars fail only there.
        first = matcher.deep_copy()
        first.compute_bitmask()
        for tried in (matcher, first):
            if tried.is_error():
                raise _invalid(grammar, _reason(tried))
        return matcher


class _Vocabulary:
    """The tokens as llguidance asks for them: a control token by its spelling, which no text can be."""

    def __init__(self, tokenizer: Tokenizer, vocab_size: int, eos_token_ids: frozenset[int]) -> None:
        control = {id: spelling.encode() for spelling, id in tokenizer.special_tokens.items()}
        self.tokens = [control.get(id) or tokenizer.piece(id) for id in range(vocab_size)]
        self.special_token_ids = sorted(control)
        self.eos_token_id = min(eos_token_ids)
        self.bos_token_id = None
        self.tokenizer = tokenizer
        self._by_piece = {piece: id for id, piece in tokenizer.pieces.items() if piece}

    def spelled(self, text: bytes) -> list[int] | None:
        """Tokens that are `text` together, which is short; None if there are none."""
        token_ids, start = [], 0
        while start < len(text):
            ends = range(len(text), start, -1)
            end = next((end for end in ends if text[start:end] in self._by_piece), None)
            if end is None:
                return None
            token_ids.append(self._by_piece[text[start:end]])
            start = end
        return token_ids

    def __call__(self, text: str) -> list[int]:
        """Only asked for where tokens are forced, which nobody here does."""
        return self.tokenizer.encode(text)


def _source(grammar: Grammar) -> str:
    """In llguidance's own words. Raises ValueError."""
    if grammar.kind == "choice":
        return grammar_from("lark", "start: " + " | ".join([json.dumps(text) for text in json.loads(grammar.text)]))
    return grammar_from(grammar.kind, grammar.text)


def _reason(matcher: LLMatcher) -> str:
    return " ".join(matcher.get_error().partition("<non-verbose/>")[0].split())


def _invalid(grammar: Grammar, why: str) -> GrammarInvalid:
    return GrammarInvalid(f"`{grammar.param}` cannot be compiled: {why}.", param=grammar.param)
