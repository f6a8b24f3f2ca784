"""A constraint that begins in the middle of an answer: any bytes are allowed until a mark, then the rules apply.

A model calls a tool after text of any kind, and answers in a format after its thoughts. That free text is matched by
its bytes alone: no grammar applies to it, so it may contain anything, also broken UTF-8.
"""

from collections.abc import Mapping
from functools import lru_cache
from typing import Protocol

from runtimes.llm.engine.sequence import Constraint
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
