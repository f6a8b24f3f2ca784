"""Where the text of a sequence continued after the same few tokens: the source of proposals for speculation.

Answers that edit code or quote a document repeat long passages of their prompt (Saxena 2023, "Prompt lookup decoding",
https://github.com/apoorvumang/prompt-lookup-decoding). The index follows such a passage token by token, so it knows how
long the match is. A token costs constant time, and a sequence constant memory: a hash table of positions, in which
newer positions replace older ones. A position is checked against the text before use, so collisions only lose matches.
"""

from array import array
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

SIZE = 3
"""Tokens that must be equal before the passage after them is proposed."""
RESUMES = 8
"""Equal tokens after which a passage is followed over one token that differs: an answer renames a variable."""
_WORD = 0xFFFFFFFF
_FACTORS = (0x9E3779B1, 0x85EBCA6B, 0xC2B2AE35)
_LEAST_BITS, _MOST_BITS = 12, 16


class NgramIndex:
    """The index of one growing text. `token_ids` is the text itself, which only ever gets longer."""

    __slots__ = ("_at", "_bits", "_places", "_size", "_token_ids", "matched")

    def __init__(self, token_ids: Sequence[int], predicted: int | None = None) -> None:
        """The next token is predicted to be that at the position `predicted`, if given."""
        self._token_ids = token_ids
        self._size = len(token_ids)
        self._at = -1
        self.matched = 0
        """The number of last tokens that the passage before the prediction has too, as far as it was followed."""
        self._bits = min(max(_LEAST_BITS, (2 * self._size).bit_length()), _MOST_BITS)
        self._places = array("i", bytes(4 << self._bits))
        begin = max(0, self._size - (1 << _MOST_BITS))
        self._insert(np.array(token_ids[begin : self._size - 1], dtype=np.int64), begin)
        if self._size >= SIZE:
            self._look_up(self._size)
        if predicted is not None:
            self._at, self.matched = predicted, RESUMES

    @property
    def at(self) -> int:
        """The position of the next token's prediction; -1 without one."""
        return self._at

    def catch_up(self, observe: Callable[[int, bool], None]) -> None:
        """Take the tokens that the text has got since. Calls `observe` with the length of the match and whether the
        prediction was right, for each token that was predicted."""
        token_ids = self._token_ids
        for place in range(self._size, len(token_ids)):
            if self._at >= 0:
                right = token_ids[self._at] == token_ids[place]
                observe(self.matched, right)
                self._at += 1
                if right:
                    self.matched += 1
                else:
                    self._at, self.matched = (self._at if self.matched >= RESUMES else -1), 0
            self._look_up(place + 1)
        self._size = len(token_ids)

    def proposal(self, most: int) -> list[int]:
        """The next tokens if the text continues as the passage does, `most` at most. A passage that reaches the end of
        the text repeats itself."""
        if self._at < 0:
            return []
        tokens = list(self._token_ids[self._at : self._at + most])
        period = self._size - self._at
        while len(tokens) < most:
            tokens.append(tokens[-period])
        return tokens

    def _look_up(self, end: int) -> None:
        """Begin a match with the tokens before `end`, if they occurred earlier, and record their position."""
        if end < SIZE:
            return
        token_ids = self._token_ids
        first, second, third = token_ids[end - 3], token_ids[end - 2], token_ids[end - 1]
        slot = (first * _FACTORS[0] + second * _FACTORS[1] + third * _FACTORS[2] & _WORD) >> 32 - self._bits
        place, self._places[slot] = self._places[slot], end
        if self._at >= 0 and self.matched >= SIZE:
            return
        if (
            0 < place < end
            and token_ids[place - 1] == third
            and token_ids[place - 2] == second
            and token_ids[place - 3] == first
        ):
            self._at, self.matched = place, SIZE

    def _insert(self, ids: "NDArray[np.int64]", begin: int) -> None:
        """Record the positions after all runs of SIZE tokens in `ids`, which begin at position `begin`."""
        if len(ids) < SIZE:
            return
        sums = ids[:-2] * _FACTORS[0] + ids[1:-1] * _FACTORS[1] + ids[2:] * _FACTORS[2]
        slots = (sums & _WORD) >> 32 - self._bits
        # Of equal slots the last one counts, as it does one by one.
        np.frombuffer(self._places, dtype=np.int32)[slots] = np.arange(len(slots), dtype=np.int32) + (begin + SIZE)
