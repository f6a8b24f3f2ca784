"""vLLM's `bad_words`: sequences of tokens that never appear in an answer.

A word is one sequence at the start of a text and another one within it. As in vLLM, the last token of a sequence is
masked where the answer's tokens before it are the rest of the sequence.
"""

from collections.abc import Callable, Iterable, Sequence


class BadWords:
    """The sequences of one request. All of its answers share it."""

    def __init__(self, sequences: Iterable[Sequence[int]]) -> None:
        unique = {tuple(token_ids) for token_ids in sequences}
        self._always = frozenset([token_ids[0] for token_ids in unique if len(token_ids) == 1])
        self._after: dict[int, list[tuple[tuple[int, ...], int]]] = {}
        """By the last token before it: the other tokens of a sequence before its last one, and the last one."""
        for *before, last in unique:
            if before:
                self._after.setdefault(before[-1], []).append((tuple(before), last))

    def banned(self, token_ids: Sequence[int], begin: int) -> frozenset[int]:
        """The tokens that are excluded after the answer's tokens, which start at `begin`."""
        size = len(token_ids)
        if size == begin or (endings := self._after.get(token_ids[-1])) is None:
            return self._always
        ended = [
            last for before, last in endings
            if len(before) <= size - begin and tuple(token_ids[size - len(before) :]) == before
        ]  # fmt: skip
        return self._always.union(ended) if ended else self._always


def spelled(words: Sequence[str], encode: Callable[[str], list[int]]) -> BadWords:
    """The token sequences of the words: as `encode` returns them, and after a space if that is another sequence of the
    same length.
    """
    sequences = []
    for word in words:
        plain, within = encode(word), encode(" " + word.lstrip())
        sequences.append(plain)
        if within and within[0] != plain[0] and len(within) == len(plain):
            sequences.append(within)
    return BadWords(sequences)
