"""The test of two arms' rates in blocks: it uses the failures as well as the successes of each arm."""

from collections.abc import Sequence
from math import log

import msgspec

_PRIOR = 0.18
"""The prior count of both outcomes, which Turner, Ly and Grünwald recommend."""
MOST_PENDING = 4096
"""Outcomes of one arm that wait for those of the other; later ones are not tested."""


class BlockTest(msgspec.Struct):
    """Outcomes of 0 or 1 of two arms, one at a time. A block has `sizes` outcomes of each arm, in the order of arrival.

    ``E = prod over blocks of p_a(y_a) p_b(y_b) / (p_0(y_a) p_0(y_b))``, where the rates a and b are estimated from the
    blocks before, and ``p_0 = (n_a a + n_b b) / (n_a + n_b)``: an e-value against equal rates of a steady distribution
    (Turner, Ly and Grünwald, "Generic E-variables for exact sequential k-sample tests", arXiv 2106.02693).
    """

    sizes: tuple[int, int] = (1, 1)
    log_e: float = 0.0
    successes: list[int] = msgspec.field(default_factory=lambda: [0, 0])
    trials: list[int] = msgspec.field(default_factory=lambda: [0, 0])
    pending: tuple[list[int], list[int]] = msgspec.field(default_factory=lambda: ([], []))

    def add(self, arm: int, outcome: bool) -> None:
        """Add an outcome of an arm: 0 or 1."""
        if len(self.pending[arm]) < MOST_PENDING:
            self.pending[arm].append(int(outcome))
        first, second = self.pending
        while len(first) >= self.sizes[0] and len(second) >= self.sizes[1]:
            self._count(first[: self.sizes[0]], second[: self.sizes[1]])
            del first[: self.sizes[0]], second[: self.sizes[1]]

    def _count(self, first: Sequence[int], second: Sequence[int]) -> None:
        rates = [(self.successes[i] + _PRIOR) / (self.trials[i] + 2 * _PRIOR) for i in (0, 1)]
        shared = (self.sizes[0] * rates[0] + self.sizes[1] * rates[1]) / sum(self.sizes)
        for arm, outcomes in enumerate((first, second)):
            true, total, rate = sum(outcomes), len(outcomes), rates[arm]
            self.log_e += true * log(rate / shared) + (total - true) * log((1 - rate) / (1 - shared))
            self.successes[arm] += true
            self.trials[arm] += total


def block_sizes(share: float, most: int = 16) -> tuple[int, int]:
    """Sizes of blocks that use nearly all outcomes if the second arm has this share of them."""
    ratio = share / (1 - share)
    return (1, min(round(ratio), most)) if ratio >= 1 else (min(round(1 / ratio), most), 1)
