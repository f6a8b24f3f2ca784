"""Counts of compared answers, which add up over requests, processes and restarts, and the verdict on them."""

from collections.abc import Sequence
from math import log
from typing import NamedTuple

import msgspec

from config.schema.config import CopiesConfig
from policies.rollouts.decide import Judgement
from policies.sequential.event_ratio import EventCount, log_rise
from policies.sequential.proportions import Proportion, difference_interval, rate_interval
from policies.sequential.quantiles import bin_of

MOST_FIELDS = 32
"""Fields whose differences are counted by name."""
OTHER = "other"


class AnswerTimes(NamedTuple):
    """Seconds from the begin of a call to the first byte of its answer, and to the end."""

    first_byte: float
    total: float


class PairTally(msgspec.Struct, omit_defaults=True):
    """Counts of copies whose answers were compared with the client's.

    A copy of the noise arm has two comparisons: of the shadow's answer, and of a second answer of the primary.
    """

    compared: int = 0
    """Copies without a second answer of the primary."""
    differing: int = 0
    """Those whose answers differ."""
    repeated: int = 0
    """Copies with a second answer of the primary."""
    shadow_only: int = 0
    """Those of which only the shadow's answer differs: discordant pairs."""
    repeat_only: int = 0
    """Those of which only the primary's second answer differs: discordant pairs."""
    both: int = 0
    """Those of which both answers differ from the first one."""
    fields: dict[str, int] = msgspec.field(default_factory=dict)
    """Copies whose shadow's answer differs, by the part that differs."""
    first_byte: list[dict[int, int]] = msgspec.field(default_factory=list)
    """The times to the first byte in bins: of the primary's answers, then of the shadow's."""
    total: list[dict[int, int]] = msgspec.field(default_factory=list)
    """The times to the end."""

    def add(self, other: "PairTally") -> None:
        """Add the counts of another process."""
        self.compared += other.compared
        self.differing += other.differing
        self.repeated += other.repeated
        self.shadow_only += other.shadow_only
        self.repeat_only += other.repeat_only
        self.both += other.both
        for field, count in other.fields.items():
            self._count_field(field, count)
        _add_times(self.first_byte, other.first_byte)
        _add_times(self.total, other.total)

    def count(self, fields: tuple[str, ...], repeat_differs: bool | None) -> None:
        """Count one copy: the parts in which the shadow's answer differs, and whether the primary's second answer
        does; None without one."""
        differs = bool(fields)
        for field in fields:
            self._count_field(field, 1)
        if repeat_differs is None:
            self.compared += 1
            self.differing += differs
            return
        self.repeated += 1
        self.shadow_only += differs and not repeat_differs
        self.repeat_only += repeat_differs and not differs
        self.both += differs and repeat_differs

    def count_times(self, primary: "AnswerTimes", shadow: "AnswerTimes") -> None:
        """Count the times of both answers to one copy."""
        _add_times(self.first_byte, [{bin_of(times.first_byte): 1} for times in (primary, shadow)])
        _add_times(self.total, [{bin_of(times.total): 1} for times in (primary, shadow)])

    def _count_field(self, field: str, count: int) -> None:
        if field not in self.fields and len(self.fields) >= MOST_FIELDS:
            field = OTHER
        self.fields[field] = self.fields.get(field, 0) + count


def _add_times(times: list[dict[int, int]], more: Sequence[dict[int, int]]) -> None:
    times += [{} for _ in range(len(more) - len(times))]
    for bins, added in zip(times, more, strict=False):
        for number, count in added.items():
            bins[number] = bins.get(number, 0) + count


class ShadowSample(msgspec.Struct):
    """A differing copy: the redacted texts of its request and of both answers, cut to a few lines."""

    at: float
    """Unix time."""
    id: str
    """The id of the client's request."""
    differences: dict[str, str]
    """By the part that differs: the difference."""
    request: str
    primary: str
    shadow: str


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
    """Whether the shadow's answers differ from the primary's beyond its own noise. Valid at every look.

    The counts are those of all processes. The discordant pairs are those copies of which either the shadow's answer or
    a second answer of the primary differs from the client's answer, but not both. If the shadow answers as the primary
    does, both are equally likely: a discordant pair is the shadow's with probability 1/2 (McNemar, "Note on the
    sampling error of the difference between correlated proportions or percentages", Psychometrika 12, 1947). The
    sequential test of events with the share 1/2 is this test at every look. Without a second answer the primary is
    assumed to repeat its answers: each difference is the shadow's.
    """
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
