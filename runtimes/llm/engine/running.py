"""The running sequences, and which of them is preempted first."""

from collections.abc import Iterator
from itertools import chain

from runtimes.llm.engine.fairness import ServedTokens
from runtimes.llm.engine.sequence import Sequence


class Running:
    """By id: `prompts` have more than one token to compute, `decoding` have one."""

    def __init__(self, counter: ServedTokens) -> None:
        self.prompts: dict[int, Sequence] = {}
        self.decoding: dict[int, Sequence] = {}
        self._counter = counter

    def __len__(self) -> int:
        return len(self.prompts) + len(self.decoding)

    def __iter__(self) -> Iterator[Sequence]:
        return chain(self.prompts.values(), self.decoding.values())

    def __contains__(self, sequence_id: int) -> bool:
        return sequence_id in self.prompts or sequence_id in self.decoding

    def decodes(self, sequence: Sequence) -> None:
        """Record that a prompt is computed and that its sequence has a new token."""
        if self.prompts.pop(sequence.id, None) is not None:
            self.decoding[sequence.id] = sequence

    def remove(self, sequence_id: int) -> None:
        """Remove a sequence; no effect if it does not run."""
        self.prompts.pop(sequence_id, None)
        self.decoding.pop(sequence_id, None)

    def decoding_below(self, priority: float) -> list[Sequence]:
        """The sequences that decode, of priority numbers below `priority`."""
        return [sequence for sequence in self.decoding.values() if sequence.standing.priority < priority]

    def turn(self, background: int, most: int) -> list[Sequence]:
        """All live sequences that decode, and of the background, beside them, those that rested longest: `most` in
        all, and at least one."""
        live = self.decoding_below(background)
        others = [sequence for sequence in self.decoding.values() if sequence.standing.priority >= background]
        chosen = others[: max(1, most - len(live))]
        for sequence in chosen if len(chosen) < len(others) else ():
            self.decoding[sequence.id] = self.decoding.pop(sequence.id)
        return live + chosen

    def last(self) -> Sequence:
        """The sequence to preempt first: of the lowest priority, of the tenant that has received most, the newest.

        Raises ValueError if nothing runs.
        """
        return max(self, key=self._rank)

    def _rank(self, sequence: Sequence) -> tuple[int, float, int]:
        return sequence.standing.priority, self._counter.level(sequence.standing.tenant), sequence.id
