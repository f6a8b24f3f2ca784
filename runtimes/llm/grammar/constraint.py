"""Grammars that constrain the text of an answer, as masks over the next token, by llguidance
(https://github.com/guidance-ai/llguidance).

Grammar     the rules, as a request gives them: plain data
Grammars    compiles them for one model, each once, never on the event loop
Matcher     one answer's place in them: the `Constraint` of its sequence

A grammar comes from a request, so everything is bounded: its size, its compilation and the work of each step. A grammar
over a bound fails its own request only. Work that llguidance does not bound
is tried in a process that can be ended first (`sandbox`).

A model calls a tool after text of any kind, and answers in a format after its thoughts. That free text is matched by
its bytes alone: no grammar applies to it, so it may contain anything, also broken UTF-8.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from typing import Protocol

from llguidance import LLMatcher

from adapters.errors import CallerError
from runtimes.llm.grammar.build import CannotBuild, Kind, LongestTokens, Vocabulary, build, reason
from runtimes.llm.grammar.sandbox import AT_ONCE, Sandbox, Turns
from runtimes.llm.sequence import Constraint
from runtimes.llm.text.tokenizer import Tokenizer


class TextRules(Constraint, Protocol):
    """A constraint that can begin within a token."""

    def allows(self, text: bytes) -> bool:
        """Whether `text` is allowed next."""

    def take(self, text: bytes) -> None:
        """Advance by `text`, which is allowed."""


class Mark:
    """A text of a model's format, as one control token or spelled by other tokens."""

    def __init__(self, text: str, tokenizer: Tokenizer) -> None:
        self.text = text.encode()
        self.token_id = tokenizer.special_tokens.get(text)
        self.pieces: Mapping[int, bytes] = tokenizer.pieces
        self._rests: dict[int, dict[int, bytes]] = {}
        self._parts: dict[bytes, list[int]] = {}

    def begun(self, tail: bytes) -> int:
        """The number of bytes at the end of `tail` that are a beginning of the mark."""
        ends = range(min(len(self.text) - 1, len(tail)), 0, -1)
        return next((end for end in ends if tail.endswith(self.text[:end])), 0)

    def rests(self, begun: int) -> dict[int, bytes]:
        """Tokens that complete a mark after that many of its bytes, and the text after the mark in them."""
        cached = self._rests.get(begun)
        if cached is None:
            left = self.text[begun:]
            cached = {id: piece[len(left) :] for id, piece in self.pieces.items() if piece.startswith(left)}
            self._rests[begun] = cached
        return cached

    def parts(self, left: bytes) -> list[int]:
        """Tokens that are a part of the mark, of which `left` is missing."""
        cached = self._parts.get(left)
        if cached is None:
            cached = [id for id, piece in self.pieces.items() if piece and left != piece and left.startswith(piece)]
            self._parts[left] = cached
        return cached


@lru_cache(64)
def mark_of(text: str, tokenizer: Tokenizer) -> Mark:
    return Mark(text, tokenizer)


class AfterMark:
    """The state of one answer: before `mark`, then in `rules`; without rules any text may follow the mark.

    A token that completes the mark and then violates the rules is excluded. `width` is the size of a mask in bytes.
    """

    __slots__ = ("_allowed", "_mark", "_rules", "_tail", "_waits", "_width")

    def __init__(self, mark: Mark, rules: TextRules | None, width: int) -> None:
        self._mark = mark
        self._rules = rules
        self._width = width
        self._tail = b""
        self._waits = True

    @property
    def waits(self) -> bool:
        """Whether the answer is still before the mark."""
        return self._waits

    @property
    def free(self) -> bool:
        if self._waits:
            return self._rules is None or not self._forbidden()
        return self._rules is None or self._rules.free

    def mask(self) -> bytes:
        if not self._waits:
            return b"\xff" * self._width if self._rules is None else self._rules.mask()
        mask = bytearray(b"\xff" * self._width)
        for token_id in self._forbidden():
            mask[token_id // 8] &= ~(1 << token_id % 8)
        return bytes(mask)

    def advance(self, token_id: int) -> None:
        if not self._waits:
            if self._rules is not None:
                self._rules.advance(token_id)
        elif token_id == self._mark.token_id:
            self._waits = False
        else:
            self.take(self._mark.pieces.get(token_id, b""))

    def allows(self, text: bytes) -> bool:
        if not self._waits:
            return self._rules is None or self._rules.allows(text)
        rest = self._after_mark(text)
        return rest is None or self._rules is None or self._rules.allows(rest)

    def take(self, text: bytes) -> None:
        if not self._waits:
            if self._rules is not None:
                self._rules.take(text)
            return
        rest = self._after_mark(text)
        if rest is None or (self._rules is not None and not self._rules.allows(rest)):
            whole = self._tail + text
            self._tail = whole[max(len(whole) - len(self._mark.text) + 1, 0) :]
            return
        self._waits = False
        if self._rules is not None:
            self._rules.take(rest)

    def _after_mark(self, text: bytes) -> bytes | None:
        """The part of `text` after the mark; None if the mark is not complete with it."""
        _, mark, rest = (self._tail + text).partition(self._mark.text)
        return rest if mark else None

    def _forbidden(self) -> list[int]:
        begun = self._mark.begun(self._tail)
        if not begun or self._rules is None:
            return []
        return [id for id, rest in self._mark.rests(begun).items() if not self._rules.allows(rest)]


MAX_CHARACTERS = 1 << 18
MAX_CACHED = 64
MAX_CACHED_BYTES = 256 << 20
MAX_REFUSED = 1024
MAX_WAITING = 32
MAX_WAITING_OF_TENANT = 16
WAIT_SECONDS = 10.0


class GrammarInvalid(CallerError):
    """A grammar that cannot be compiled, or whose bounds an answer exceeded."""

    code = "invalid_grammar"


@dataclass(frozen=True, slots=True)
class Grammar:
    """`text` is JSON for a schema and for a choice, a list of texts; a `grammar` may be Lark's or GBNF.

    `param` is the name of the request's field.
    """

    kind: Kind
    text: str
    param: str
    after: str = ""
    """A text that precedes the constrained part; before it any text is allowed."""

    @property
    def key(self) -> bytes:
        return blake2b(
            f"{self.kind}\n{self.after}\n{self.text}".encode(errors="surrogatepass"), digest_size=16
        ).digest()


class Matcher:
    """The state of one answer in a grammar: its `TextRules`."""

    __slots__ = ("_matcher", "_spelling", "_width")
    free = False

    def __init__(self, matcher: LLMatcher, width: int, spelling: LongestTokens) -> None:
        self._matcher = matcher
        self._width = width
        self._spelling = spelling

    def mask(self) -> bytes:
        """One bit for each token, the lowest of a byte first: 1 for an allowed token.

        A matcher that has failed lets an answer end, and `advance` returns the reason.
        """
        return self._matcher.compute_bitmask()[: self._width]

    def advance(self, token_id: int) -> None:
        """Advance by the sampled `token_id`. Raises GrammarInvalid if no token can follow."""
        # A failure while the mask was made shows here.
        if self._matcher.is_error() or not self._matcher.consume_token(token_id):
            raise GrammarInvalid(f"The answer's grammar has failed: {reason(self._matcher)}.")

    def copy(self) -> "Matcher":
        """A copy in the same state. Both share the caches of the grammar, so that each makes the other faster."""
        return Matcher(self._matcher.deep_copy(), self._width, self._spelling)

    def allows(self, text: bytes) -> bool:
        token_ids = self._spelling.spelled(text)
        return token_ids is not None and self._matcher.validate_tokens(token_ids) == len(token_ids)

    def take(self, text: bytes) -> None:
        for token_id in self._spelling.spelled(text) or ():
            self.advance(token_id)


class Compiled:
    """A grammar for one model. `size` is its approximate size in bytes."""

    def __init__(self, matcher: Matcher, after: Mark | None, width: int, size: int) -> None:
        self._matcher = matcher
        self._after = after
        self._width = width
        self.size = size

    def start(self, continued: Iterable[int] = ()) -> TextRules:
        """The state of a new answer after its tokens `continued`. Raises GrammarInvalid if they break the rules."""
        matcher = self._matcher.copy()
        rules = matcher if self._after is None else AfterMark(self._after, matcher, self._width)
        for token_id in continued:
            rules.advance(token_id)
        return rules


class Grammars:
    """Compiles grammars for one model. Caches the last ones, and the reasons of the last refusals. It belongs to one
    event loop.

    `vocab_size` is the model's, which may exceed the tokenizer's. Each of `eos_token_ids` ends an answer.
    """

    def __init__(self, tokenizer: Tokenizer, vocab_size: int, eos_token_ids: frozenset[int]) -> None:
        vocabulary = vocabulary_of(tokenizer, vocab_size, eos_token_ids)
        self._tokenizer = tokenizer
        self._reads = vocabulary.tokenizer()
        self._spelling = LongestTokens(vocabulary)
        self._sandbox = Sandbox(vocabulary)
        self._width = (vocab_size + 7) // 8
        self._cache: OrderedDict[bytes, Compiled] = OrderedDict()
        self._cached_bytes = 0
        self._refused: OrderedDict[bytes, str] = OrderedDict()
        self._under_way: dict[bytes, asyncio.Task[Compiled]] = {}
        self._turns = Turns(AT_ONCE, most=MAX_WAITING, most_of_one=MAX_WAITING_OF_TENANT)

    @classmethod
    def of(cls, tokenizer: Tokenizer, vocab_size: int, eos_token_ids: frozenset[int]) -> "Grammars | None":
        """None without an end token."""
        ends = frozenset(id for id in tokenizer.eos_token_ids | eos_token_ids if id < vocab_size)
        return cls(tokenizer, vocab_size, ends) if ends else None

    def close(self) -> None:
        """Cancel running compilations, and stop the processes of the sandbox."""
        for task in self._under_way.values():
            task.cancel()
        self._sandbox.close()

    async def compiled(self, grammar: Grammar, tenant: str = "") -> Compiled:
        """Raises GrammarInvalid with the reason, CapacityError if too many others are being compiled.

        The compilation continues if the caller leaves, and other callers with the same grammar share it.
        """
        if len(grammar.text) > MAX_CHARACTERS:
            raise GrammarInvalid(f"`{grammar.param}` has more than {MAX_CHARACTERS} characters.", param=grammar.param)
        key = grammar.key
        if (cached := self._cache.get(key)) is not None:
            self._cache.move_to_end(key)
            return cached
        try:
            if (why := self._refused.get(key)) is not None:
                raise CannotBuild(why)
            return await asyncio.shield(self._under_way.get(key) or self._begin(key, grammar, tenant))
        except CannotBuild as error:
            message = f"`{grammar.param}` cannot be compiled: {error}."
            raise GrammarInvalid(message, param=grammar.param) from None

    def _begin(self, key: bytes, grammar: Grammar, tenant: str) -> "asyncio.Task[Compiled]":
        task = self._under_way[key] = asyncio.ensure_future(self._compile(key, grammar, tenant))
        task.add_done_callback(lambda task: self._end(key, task))
        return task

    def _end(self, key: bytes, task: "asyncio.Task[Compiled]") -> None:
        del self._under_way[key]
        if task.cancelled():
            return
        if isinstance(error := task.exception(), CannotBuild):
            self._refused[key] = str(error)
            if len(self._refused) > MAX_REFUSED:
                self._refused.popitem(last=False)
        elif error is None:
            self._keep(key, task.result())

    async def _compile(self, key: bytes, grammar: Grammar, tenant: str) -> Compiled:
        async with self._turns.turn(tenant, WAIT_SECONDS):
            size = await self._sandbox.cost(grammar.kind, grammar.text)
            # Bounded now: the thread ends, and with it the use of the slot.
            matcher = await asyncio.to_thread(build, self._reads, grammar.kind, grammar.text)
        after = mark_of(grammar.after, self._tokenizer) if grammar.after else None
        return Compiled(Matcher(matcher, self._width, self._spelling), after, self._width, size + len(grammar.text))

    def _keep(self, key: bytes, compiled: Compiled) -> None:
        self._cache[key] = compiled
        self._cached_bytes += compiled.size
        while len(self._cache) > MAX_CACHED or (self._cached_bytes > MAX_CACHED_BYTES and len(self._cache) > 1):
            self._cached_bytes -= self._cache.popitem(last=False)[1].size


def vocabulary_of(tokenizer: Tokenizer, vocab_size: int, eos_token_ids: frozenset[int]) -> Vocabulary:
    """The vocabulary of a model of `vocab_size` rows."""
    control = {id: spelling.encode() for spelling, id in tokenizer.special_tokens.items()}
    tokens = [control.get(id) or tokenizer.piece(id) for id in range(vocab_size)]
    return Vocabulary(tokens, [id for id in sorted(control) if id < vocab_size], sorted(eos_token_ids))
