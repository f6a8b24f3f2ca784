"""The difference of two arms' mean values, tested at every value: also while the arms' shares change.

A value y in [0, 1] of an arm counts as ``x = c (y - m) / w`` for the second arm and as ``-c (y - m) / (1 - w)`` for the
first. `w` is the probability that a value of the two arms is the second's, `m` a prediction of the value that does not
depend on its arm, and ``c = min(w, 1 - w) / 2``, so that x is in [-1/2, 1/2]. Its mean, given all before it, is c times
the difference of the arms' means, whatever `m` is and however both arms drift: the inverse propensity weighting of
Horvitz and Thompson (1952), with the augmentation of Robins, Rotnitzky and Zhao (1994). A prediction from a subject's
values before the experiment is CUPED.
"""

from math import exp, inf, log, log1p

import msgspec

_BETS = (0.9, 0.6, 0.4, 0.25, 0.15, 0.1, 0.06, 0.04, 0.025, 0.015, 0.01, 0.006, 0.004, 0.0025)
"""The bets of the mixture: each is the best one for some ratio of effect and variance."""
_COSTS = tuple(-log1p(-bet) - bet for bet in _BETS)
_HALVINGS = 60


class EffectSum(msgspec.Struct, array_like=True):
    """Sums over the values of two arms. `estimate` is the mean of the second arm less that of the first."""

    count: int = 0
    weight: float = 0.0
    """The sum of the c."""
    total: float = 0.0
    """The sum of the x."""
    squares: float = 0.0
    """The sum of the squared differences of each x from its prediction by the values before it."""

    def add(self, second: bool, residual: float, share: float) -> None:
        """Add a value less its prediction, which is in [-1, 1]. `share`: the second arm's probability of the value."""
        scale = min(share, 1 - share) / 2
        x = scale * residual / (share if second else share - 1)
        self.squares += (x - scale * self.estimate) ** 2
        self.count += 1
        self.weight += scale
        self.total += x

    @property
    def estimate(self) -> float:
        """The estimated effect, in [-1, 1]."""
        return min(max(self.total / self.weight, -1.0), 1.0) if self.weight else 0.0

    def log_above(self, effect: float = 0.0) -> float:
        """The logarithm of the e-value against "the effect is at most this".

        The mean over several bets b of ``exp(b sum(x - c effect) - (-ln(1 - b) - b) sum((x - prediction)^2))``: Howard,
        Ramdas, McAuliffe and Sekhon, arXiv 1810.08240, theorem 4.
        """
        return self._log_mixture(self.total - effect * self.weight)

    def log_below(self, effect: float = 0.0) -> float:
        """The logarithm of the e-value against "the effect is at least this"."""
        return self._log_mixture(effect * self.weight - self.total)

    def interval(self, alpha: float) -> tuple[float, float]:
        """The confidence sequence of the effect; of a mean of effects if it changes."""
        if not self.weight:
            return -1.0, 1.0
        # Every bet bounds the effect; the mixture needs a search between the widest bounds.
        needed = log(2 / alpha)
        radius = self._radius(needed)
        middle = self.total / self.weight
        return max(middle - radius, -1.0), min(middle + radius, 1.0)

    def _radius(self, needed: float) -> float:
        """The distance from the estimate at which the e-value reaches a logarithm."""
        low, high = 0.0, 1.0
        while self._log_mixture(high * self.weight) < needed:
            low, high = high, 2 * high
            if high > 1e9:
                return inf
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            if self._log_mixture(middle * self.weight) < needed:
                low = middle
            else:
                high = middle
        return high

    def _log_mixture(self, excess: float) -> float:
        terms = [bet * excess - cost * self.squares for bet, cost in zip(_BETS, _COSTS, strict=True)]
        highest = max(terms)
        return highest + log(sum(exp(term - highest) for term in terms) / len(terms))
