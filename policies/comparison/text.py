"""Equal, normalized and similar texts."""

import unicodedata
from collections.abc import Hashable, Sequence
from math import sqrt

from config.schema.copies import TextTestConfig

MOST_SIGNS = 4096
"""Signs of a text that is compared sign by sign. A longer one is compared word by word."""
MOST_WORDS = 16_384
"""Words of a text whose edits are counted. Of longer texts, the rest counts as different."""


def accepts(test: TextTestConfig, first: str, second: str) -> bool:
    """Whether a test accepts two texts. A test by a model accepts equal texts only: the model decides the others."""
    if test.edit is not None:
        return first == second or similarity(first, second) >= test.edit
    return first == second or (test.same == "normalized" and normalized(first) == normalized(second))


def normalized(text: str) -> str:
    """The text in one form of Unicode (NFKC), without case, with single spaces."""
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split())


def similarity(first: str, second: str) -> float:
    """1 less the edit distance as a share of the longer text: 1 for equal texts, 0 for texts without a common sign."""
    one: Sequence[Hashable] = first
    other: Sequence[Hashable] = second
    if max(len(first), len(second)) > MOST_SIGNS:
        one, other = first.split(), second.split()
    longest = max(len(one), len(other))
    if not longest:
        return 1.0
    cut = max(longest - MOST_WORDS, 0)
    return 1 - (edit_distance(one[:MOST_WORDS], other[:MOST_WORDS]) + cut) / longest


def cosine(first: Sequence[float], second: Sequence[float]) -> float:
    """The cosine of the angle between two vectors; -1 if their lengths differ or one is zero."""
    norms = sqrt(sum(x * x for x in first)) * sqrt(sum(x * x for x in second))
    if len(first) != len(second) or not norms:
        return -1.0
    return sum(x * y for x, y in zip(first, second, strict=True)) / norms


def edit_distance(first: Sequence[Hashable], second: Sequence[Hashable]) -> int:
    """The least number of insertions, deletions and substitutions that turn one sequence into the other (Levenshtein).

    The bit-parallel algorithm of Myers, "A fast bit-vector algorithm for approximate string matching based on dynamic
    programming", J. ACM 46 (1999), in the form of Hyyrö (2003), with one integer as the bit vector. Each element of the
    second sequence takes a time in proportion to the first, divided by the bits of a machine word.
    """
    first, second = _differing_parts(first, second)
    if not first or not second:
        return len(first) + len(second)
    places: dict[Hashable, int] = {}
    for place, element in enumerate(first):
        places[element] = places.get(element, 0) | 1 << place
    last, mask = 1 << (len(first) - 1), (1 << len(first)) - 1
    rises, falls, distance = mask, 0, len(first)
    for element in second:
        equal = places.get(element, 0)
        vertical = equal | falls
        horizontal = ((equal & rises) + rises) ^ rises | equal
        up = (falls | ~(horizontal | rises)) & mask
        down = rises & horizontal
        if up & last:
            distance += 1
        elif down & last:
            distance -= 1
        up = (up << 1 | 1) & mask
        down = down << 1 & mask
        rises = (down | ~(vertical | up)) & mask
        falls = up & vertical
    return distance


def _differing_parts(
    first: Sequence[Hashable], second: Sequence[Hashable]
) -> tuple[Sequence[Hashable], Sequence[Hashable]]:
    """The sequences without their common beginning and their common end, the shorter one first."""
    if len(first) > len(second):
        first, second = second, first
    start, end = 0, len(first)
    while start < end and first[start] == second[start]:
        start += 1
    offset = len(second) - len(first)
    while end > start and first[end - 1] == second[end - 1 + offset]:
        end -= 1
    return first[start:end], second[start : end + offset]
