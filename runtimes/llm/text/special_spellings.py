"""The places at which texts spell control tokens. In a message such a spelling is ordinary text."""

import re
from collections.abc import Iterable


class _Trie(dict[str, "_Trie"]):
    """Characters and their possible successors; a token ends at an empty one."""


class SpecialSpellings:
    """The spellings of one vocabulary's control tokens.

    A text that is cut after the first character of each spelling, with each part encoded separately, has no control
    token. The pattern is a trie: a text costs a few steps a character, however many control tokens there are.
    """

    def __init__(self, tokens: Iterable[str]) -> None:
        spellings = [token for token in tokens if token]
        self._longest = max(map(len, spellings), default=0)
        self._begun = {token[:end] for token in spellings for end in range(1, len(token))}
        self._whole = re.compile(f"(?={_pattern(_trie(spellings))}).", re.DOTALL) if spellings else None

    def cut(self, text: str, *, open_end: bool = False) -> list[str]:
        """The parts of `text`, none of which spells a control token.

        With an `open_end` more text follows, so the beginning of a spelling at the end of `text` is cut too.
        """
        if self._whole is None:
            return [text]
        places = {match.end() for match in self._whole.finditer(text)}
        if open_end:
            places |= self._begun_at_end(text)
        ends = sorted(places)
        return [text[start:end] for start, end in zip([0, *ends], [*ends, len(text)], strict=True)]

    def _begun_at_end(self, text: str) -> set[int]:
        """Offsets after the first characters of spellings that are incomplete at the end, without white space."""
        end = len(text.rstrip())
        starts = range(max(0, end - self._longest), end)
        return {start + 1 for start in starts if text[start:end] in self._begun}


def _trie(tokens: Iterable[str]) -> _Trie:
    root = _Trie()
    for token in tokens:
        node = root
        for character in token:
            node = node.setdefault(character, _Trie())
        node[""] = _Trie()
    return root


def _pattern(node: _Trie) -> str:
    if "" in node:  # this spelling matches before a longer one with the same beginning
        return ""
    branches = [re.escape(character) + _pattern(child) for character, child in node.items()]
    return branches[0] if len(branches) == 1 else f"(?:{'|'.join(branches)})" if branches else ""
