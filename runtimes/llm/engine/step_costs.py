"""How much longer a step lasts for the tokens that it computes ahead, and how many of them pay."""

from collections import deque
from collections.abc import Callable
from collections.abc import Sequence as Items
from statistics import median

MOST_PROPOSED = 128
"""Proposals of a step: each needs the logits of the whole vocabulary."""
_SAMPLES = 9
"""Measurements of which the median counts: a step that another program delayed does not."""
_PLAIN_EVERY = 64
"""Steps after which one without proposals is measured again: contexts grow."""
_FORGET_EVERY = 512
"""Steps after which the oldest measurement of each kind goes, so that what was measured in bad company is tried again.
"""
FIRST_SHARE = 4
"""The first proposals are one for so many sequences, at least two in all. They count as free. Later ones are at most
twice as many as were measured: a trial costs little, however expensive proposals are."""


class StepCosts:
    """The durations of steps, without a clock. `sequences` take their next token in a step, and `proposed` is the
    number of proposals in it, of all sequences together."""

    def __init__(self) -> None:
        self._plain: dict[int, deque[float]] = {}
        self._each: dict[int, dict[int, deque[float]]] = {}
        """By sequences and proposals: the part of a plain step that a proposal adds."""
        self._since: dict[int, int] = {}
        self._steps = 0

    def observe(self, sequences: int, proposed: int, seconds: float) -> None:
        """A step without prompts lasted `seconds`."""
        if seconds <= 0:
            return
        size = bucket(sequences)
        if not proposed:
            self._plain.setdefault(size, deque(maxlen=_SAMPLES)).append(seconds / sequences)
            self._since[size] = 0
        elif (plain := self.plain(sequences)) is not None:
            added = max(0.0, seconds / plain - 1) / proposed
            costs = self._each.setdefault(size, {})
            costs.setdefault(bucket(proposed), deque(maxlen=_SAMPLES)).append(added)
            self._since[size] += 1
        self._steps += 1
        if self._steps % _FORGET_EVERY == 0:
            self._forget()

    def plain(self, sequences: int) -> float | None:
        """Seconds of a step without proposals; None if none was measured."""
        measured = self._plain.get(bucket(sequences))
        return median(measured) * sequences if measured else None

    def plain_is_due(self, sequences: int) -> bool:
        """Whether the next step should have no proposals, so that it measures `plain`."""
        return self._since.get(bucket(sequences), _PLAIN_EVERY) >= _PLAIN_EVERY

    def most(self, sequences: int) -> int:
        """The greatest number of proposals that may be tried."""
        measured = [size for size, costs in self._each.get(bucket(sequences), {}).items() if costs]
        return 2 * max(measured, default=max(1, sequences // (2 * FIRST_SHARE)))

    def added(self, sequences: int) -> Callable[[int], float]:
        """The function from the number of proposals to the part of a plain step that they add. The cost of a number
        that was not measured is that of the next lower one, or else of the next higher one."""
        costs = self._each.get(bucket(sequences), {})
        each = {size: median(measured) for size, measured in costs.items() if measured}
        sizes = sorted(each)

        def cost(proposed: int) -> float:
            if not sizes:
                return 0.0
            own = bucket(proposed)
            return each[max((size for size in sizes if size <= own), default=sizes[0])] * proposed

        return cost

    def _forget(self) -> None:
        for costs in self._each.values():
            for measured in costs.values():
                if measured:
                    measured.popleft()


def bucket(count: int) -> int:
    """Counts that are measured together: each up to 8, above that four for each power of two."""
    if count <= 8:
        return count
    shift = count.bit_length() - 3
    return (count - 1 >> shift) + 1 << shift


MARGIN = 1.05
"""The expected gain from which tokens are proposed."""


def best_count(sequences: int, chances: Items[float], added: Callable[[int], float]) -> int:
    """The number of proposals with the most expected tokens a second; 0 if that gains less than MARGIN.

    `chances` are those of all sequences' proposals to be accepted, the highest first.
    """
    best, count, expected = float(sequences) * MARGIN, 0, float(sequences)
    for number, chance in enumerate(chances, start=1):
        expected += chance
        if (rate := expected / (1 + added(number))) > best:
            best, count = rate, number
    return count


ALLOWANCE = 0.015
"""The part of the time without proposals that may be lost to them in the long run, by each `DraftCredit`."""
FIRST_CREDIT = 8.0
"""Steps that may be lost at first, and to which the allowance fills a credit up."""


class DraftCredit:
    """What may still be lost, in steps without proposals: what was allowed and saved, less what was lost. It is at
    most `most`, so that what was saved long ago pays for no long loss."""

    def __init__(self, most: float) -> None:
        self._most = most
        self._left = FIRST_CREDIT

    @property
    def good(self) -> bool:
        return self._left > 0

    def book(self, worth: float, lasted: float) -> None:
        """The tokens of a step take `worth` steps without proposals, and this one `lasted` as long as so many."""
        left = self._left + worth - lasted
        self._left = min(self._most, max(left, min(FIRST_CREDIT, left + ALLOWANCE * worth)))
