"""Agreement of several answers to one question. Needs an extra for `edit`.

`text`     answers that are equal after normalisation (Unicode NFKC, case, white space, punctuation around words)
`number`   answers whose last number is equal: "So 6 × 7 = 42." and "42"
`edit`     the mean similarity to the other answers: 1 - Levenshtein distance / the longer length
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal
from unicodedata import category, normalize

Comparison = Literal["text", "number", "edit"]
MAX_CHARACTERS = 16_384
"""Characters of all answers together that are compared; longer answers are cut to an equal share."""
_NUMBER = re.compile(r"[-\u2212]?[0-9]{1,30}(?:,[0-9]{3}){0,10}(?:\.[0-9]{1,30})?")


@dataclass(frozen=True, slots=True)
class Agreement:
    """The share of agreement, from 0 to 1, and the answer that represents it."""

    share: float
    representative: int
    """The place of the answer among those given."""


def agreement(answers: Sequence[str], how: Comparison) -> Agreement:
    """The agreement of answers. One answer agrees with itself. Raises ValueError without an answer.

    With `text` and `number` it is the share of the largest group of equal answers, represented by its first; an answer
    without a number is alone. With `edit` it is the greatest mean similarity of one answer to the others.
    """
    if not answers:
        raise ValueError("there is no answer")
    texts = compared_parts(answers, how)
    if how == "edit":
        return _most_similar([normalised(text) for text in texts])
    keys = [normalised(text) if how == "text" else last_number(text) for text in texts]
    sizes = [keys.count(key) if key is not None else 1 for key in keys]
    largest = sizes.index(max(sizes))
    return Agreement(sizes[largest] / len(answers), largest)


def compared_parts(answers: Sequence[str], how: Comparison) -> list[str]:
    """The parts of the answers that are compared: an equal share of `MAX_CHARACTERS`, of the end for a number."""
    cut = MAX_CHARACTERS // max(len(answers), 1)
    return [answer[-cut:] if how == "number" else answer[:cut] for answer in answers]


def _most_similar(texts: list[str]) -> Agreement:
    from rapidfuzz.distance import Levenshtein

    count = len(texts)
    if count == 1:
        return Agreement(1.0, 0)
    totals = [0.0] * count
    for first in range(count):
        for second in range(first):
            similarity = Levenshtein.normalized_similarity(texts[first], texts[second])
            totals[first] += similarity
            totals[second] += similarity
    best = totals.index(max(totals))
    return Agreement(totals[best] / (count - 1), best)


def normalised(text: str) -> str:
    """A text without differences of case, width, white space and punctuation around its words."""
    words = normalize("NFKC", text).casefold().split()
    return " ".join(stripped for word in words if (stripped := _stripped(word)))


def _stripped(word: str) -> str:
    """A word without punctuation at its ends; a word of punctuation only is not changed."""
    begin, end = 0, len(word)
    while begin < end and category(word[begin]).startswith("P"):
        begin += 1
    while end > begin and category(word[end - 1]).startswith("P"):
        end -= 1
    return word[begin:end] or word


def last_number(text: str) -> float | None:
    """The last decimal number of a text; commas between thousands are ignored."""
    numbers = _NUMBER.findall(text)
    return float(numbers[-1].replace(",", "").replace("\u2212", "-")) + 0.0 if numbers else None
