"""Cuts long texts into slices that are encoded one after another.

A slice ends after a letter or a digit that a space or a new line follows: no pre-tokenizer joins the two, so the ids of
the slices are the ids of the whole text. `cuts_exactly` verifies that for a tokenizer at load.
"""

import re
from collections.abc import Callable, Iterator

SLICE = 16 * 1024
"""Characters of a slice, if its text can be cut there."""
LONGEST = 64 * 1024
"""The longest slice in characters: a text without a place to cut is cut here, through any token."""
_PLACE = re.compile(r"[^\W_](?=[ \n])")
_SAMPLE = "Some words, 12 and\nmore  of  it\n\n  x = 3 ; Ünï \t cödé 中文 字 it's a 7.5 %  end\n"


def slices(text: str, *, cut: bool = True) -> Iterator[str]:
    """The parts of `text` in their order; without `cut` only parts over LONGEST are cut."""
    start = 0
    while len(text) - start > (SLICE if cut else LONGEST):
        place = _PLACE.search(text, start + SLICE, start + LONGEST) if cut else None
        end = start + LONGEST if place is None else place.end()
        yield text[start:end]
        start = end
    if start < len(text) or not text:
        yield text[start:]


def cuts_exactly(encode: Callable[[str], list[int]]) -> bool:
    """Whether a sample has the same ids in two slices, wherever it is cut."""
    whole = encode(_SAMPLE)
    places = [place.end() for place in _PLACE.finditer(_SAMPLE)]
    return all(encode(_SAMPLE[:place]) + encode(_SAMPLE[place:]) == whole for place in places)
