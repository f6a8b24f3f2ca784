"""Constraints of answers that may begin with a thought: its budget, and rules that hold after it.

ThoughtConstraint   within a thought, which ends by itself or by its budget
MaybeThinking       before an answer that may begin with a thought, or without one
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from runtimes.llm.grammar.constraint import AfterMark, Mark, TextRules, mark_of
from runtimes.llm.text.answer_parser import ThinkFormat
from runtimes.llm.text.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True, kw_only=True)
class ThoughtRules:
    """The limits of the thoughts of one request. `width` is the size of a mask in bytes."""

    format: ThinkFormat
    is_open: bool
    budget: int | None
    tokenizer: Tokenizer
    width: int

    def start(self, rules: Callable[[], TextRules | None]) -> "ThoughtConstraint | MaybeThinking | None":
        """The constraint of a new answer; `rules` creates that of the text after the thought.

        None without constraints.
        """
        answer = rules()
        if answer is None and self.budget is None:
            return None
        if self.is_open:
            return self._thinking(answer)
        return MaybeThinking(
            mark_of(self.format.opens, self.tokenizer), answer, lambda: self._thinking(rules()), self.width
        )

    def _thinking(self, rules: TextRules | None) -> "ThoughtConstraint":
        closing = self.tokenizer.encode(f"\n{self.format.closes}", allow_special=True, continues=True)
        place = AfterMark(mark_of(self.format.closes, self.tokenizer), rules, self.width)
        return ThoughtConstraint(place, self.budget, closing, self.width)


class ThoughtConstraint:
    """One answer's place within a thought of at most `budget` tokens, `closing` not counted, and then after it."""

    __slots__ = ("_closing", "_forced", "_left", "_place", "_width")

    def __init__(self, place: AfterMark, budget: int | None, closing: Sequence[int], width: int) -> None:
        self._place = place
        self._left = budget
        self._closing = closing
        self._forced = 0
        self._width = width

    @property
    def free(self) -> bool:
        return not self._is_over and self._place.free

    def mask(self) -> bytes:
        return _only([self._closing[self._forced]], self._width) if self._is_over else self._place.mask()

    def advance(self, token_id: int) -> None:
        self._count(token_id)
        self._place.advance(token_id)

    def take(self, text: bytes) -> None:
        """Advance by `text` that followed the mark of the thought in the same token."""
        self._place.take(text)

    @property
    def _is_over(self) -> bool:
        """Whether the end mark is being written because the budget is used up."""
        return self._place.waits and self._left == 0 and self._forced < len(self._closing)

    def _count(self, token_id: int) -> None:
        if not self._place.waits or self._left is None:
            return
        if self._left:
            self._left -= 1
        elif self._is_over and token_id == self._closing[self._forced]:
            self._forced += 1


class MaybeThinking:
    """One answer's place at its beginning: in `answer`, unless it begins with the mark of a thought.

    While the text may still become the mark, both ways are open. Without rules for the answer all may come.
    """

    __slots__ = ("_answer", "_answers", "_begun", "_is_certain", "_mark", "_place", "_think", "_width")

    def __init__(
        self, mark: Mark, answer: TextRules | None, think: Callable[[], ThoughtConstraint], width: int
    ) -> None:
        self._mark = mark
        self._answer = answer
        self._place: TextRules | ThoughtConstraint | None = answer
        self._answers = True
        self._begun = 0
        self._is_certain = False
        self._think = think
        self._width = width

    @property
    def free(self) -> bool:
        return self._answers and (self._place is None or self._place.free)

    def mask(self) -> bytes:
        mask = bytes(self._width)
        if self._answers:
            mask = b"\xff" * self._width if self._place is None else self._place.mask()
        return mask if self._is_certain else _union(mask, _only(self._openings(), self._width))

    def advance(self, token_id: int) -> None:
        if not self._is_certain and self._open(token_id):
            return
        self._is_certain = True
        if self._place is not None:
            self._place.advance(token_id)

    def _open(self, token_id: int) -> bool:
        """Whether the token is of the mark."""
        piece, left = self._mark.pieces.get(token_id, b""), self._mark.text[self._begun :]
        if (token_id == self._mark.token_id and not self._begun) or piece.startswith(left):
            thought = self._think()
            thought.take(piece[len(left) :])
            self._place, self._answers, self._is_certain = thought, True, True
            return True
        if not piece or not left.startswith(piece):
            return False
        self._begun += len(piece)
        if self._answers and self._answer is not None:
            self._answers = self._answer.allows(piece)
            if self._answers:
                self._answer.advance(token_id)
        return True

    def _openings(self) -> list[int]:
        """Tokens that begin the mark, or continue it."""
        left = self._mark.text[self._begun :]
        whole = [self._mark.token_id] if self._mark.token_id is not None and not self._begun else []
        return [*whole, *self._mark.rests(self._begun), *self._mark.parts(left)]


def _only(token_ids: Sequence[int], width: int) -> bytes:
    mask = bytearray(width)
    for token_id in token_ids:
        mask[token_id // 8] |= 1 << token_id % 8
    return bytes(mask)


def _union(one: bytes, other: bytes) -> bytes:
    return (int.from_bytes(one, "little") | int.from_bytes(other, "little")).to_bytes(len(other), "little")
