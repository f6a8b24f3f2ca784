"""Whether the shadow's answers differ from the primary's beyond its own noise. Valid at every look.

The discordant pairs are those copies of which either the shadow's answer or a second answer of the primary differs from
the client's answer, but not both. If the shadow answers as the primary does, both are equally likely: a discordant pair
is the shadow's with probability 1/2 (McNemar, "Note on the sampling error of the difference between correlated
proportions or percentages", Psychometrika 12, 1947). The sequential test of events with the share 1/2 is this test at
every look. Without a second answer the primary is assumed to repeat its answers: each difference is the shadow's.
"""

from math import log
from typing import NamedTuple

from config.schema.config import CopiesConfig
from policies.rollouts.decide import Judgement
from policies.sequential.event_test import EventCount, log_rise
from policies.sequential.proportions import Proportion, difference_interval, rate_interval
from policies.shadowing.pairs import PairTally


class ShadowVerdict(NamedTuple):
    """The evidence, and the verdict. `excess` is the interval of the share of differing answers beyond the noise."""

    judgement: Judgement
    log_e: float
    """Of the e-value against "the shadow's answers differ no more often than the primary's own"."""
    needed: float
    """The logarithm of the e-value at which this is certain."""
    excess: tuple[float, float]
    pairs: int
    """The copies that count."""
    shadow_only: int
    repeat_only: int


def verdict(config: CopiesConfig, tally: PairTally) -> ShadowVerdict:
    """The verdict about the counts of all processes."""
    if config.noise:
        pairs, shadow, repeat = tally.repeated, tally.shadow_only, tally.repeat_only
        excess = difference_interval(Proportion(repeat, pairs), Proportion(shadow, pairs), config.alpha)
    else:
        pairs, shadow, repeat = tally.compared, tally.differing, 0
        excess = rate_interval(Proportion(shadow, pairs), config.alpha)
    log_e, needed = log_rise([EventCount(0.5, shadow + repeat, shadow)]), log(1 / config.alpha)
    low, high = excess
    judgement: Judgement = "undecided"
    if config.agree is None:
        judgement = "differs" if log_e >= needed else "undecided"
    elif high <= 1 - config.agree and pairs >= config.answers:
        judgement = "agrees"
    elif log_e >= needed and low > 1 - config.agree:
        judgement = "differs"
    return ShadowVerdict(judgement, log_e, needed, excess, pairs, shadow, repeat)
