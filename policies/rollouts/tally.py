"""Counts of a comparison while its arms have one set of shares: they add up over requests, processes and gateways."""

from collections.abc import Sequence

import msgspec

from policies.sequential.subexponential import WideSum

MEASURING = -1
"""The number of the stratum that counts times only, in a warm-up: their quantiles are the bounds of events."""
MOST_WAITING = 1_000_000
"""Subjects of an event that wait for the database; further ones do not count, in any arm."""
ArmCounts = list[int]
"""A count of each arm, in the order of the file: of a rollout, `from`, then `to`."""
Times = dict[int, int]
"""Times in logarithmic bins."""


class ArmTally(msgspec.Struct, omit_defaults=True):
    """Counts since the last report. Empty lists are zeros."""

    assigned: ArmCounts = msgspec.field(default_factory=list)
    """Requests that got an arm; subjects, if subjects stay with their arm."""
    ended: ArmCounts = msgspec.field(default_factory=list)
    """Requests whose end is evidence about the arm: all but those that the client cancelled."""
    events: dict[str, ArmCounts] = msgspec.field(default_factory=dict)
    """By the key of the event."""
    subjects: dict[str, dict[int, int]] = msgspec.field(default_factory=dict)
    """By the key of an event, or by "" for the assignment: the arm of each subject that this process counts first."""
    first_byte: list[Times] = msgspec.field(default_factory=list)
    """The times to the first byte of each arm."""
    tokens: list[WideSum] = msgspec.field(default_factory=list)
    """The tokens of each arm's answers."""

    def add(self, other: "ArmTally") -> None:
        """Add the counts of another process. Subjects remain subjects."""
        add_counts(self.assigned, other.assigned)
        add_counts(self.ended, other.ended)
        for key, counts in other.events.items():
            add_counts(self.events.setdefault(key, []), counts)
        for key, arms in other.subjects.items():
            if len(self.subjects.get(key, ())) < MOST_WAITING:  # else the database has been away for long
                self.subjects[key] = {**arms, **self.subjects.get(key, {})}
        self.first_byte += [{} for _ in range(len(other.first_byte) - len(self.first_byte))]
        for times, more in zip(self.first_byte, other.first_byte, strict=False):
            for number, count in more.items():
                times[number] = times.get(number, 0) + count
        self.tokens += [WideSum() for _ in range(len(other.tokens) - len(self.tokens))]
        for tokens, further in zip(self.tokens, other.tokens, strict=False):
            tokens.merge(further)


def add_counts(counts: ArmCounts, more: Sequence[int]) -> None:
    """Add counts of arms to those of `counts`, which grows as needed."""
    counts += [0] * (len(more) - len(counts))
    for arm, count in enumerate(more):
        counts[arm] += count


class StratumTally(msgspec.Struct):
    """The counts of one process under one set of shares of one comparison."""

    comparison: str
    generation: int
    stratum: int
    tally: ArmTally


class ShareOrder(msgspec.Struct, frozen=True):
    """The shares that a process applies: the share of each arm, and the stratum under which it counts."""

    comparison: str
    fingerprint: str
    generation: int
    shares: tuple[float, ...]
    stratum: int | None = None
    """None: nothing is counted, such as during a warm-up."""
    bounds: dict[str, float] = {}
    """Seconds that are frozen at the begin of the stratum, by the key of an event."""
    shadows: bool = False
    """Whether requests are copied, before the first step of a rollout."""
    warm: bool = False
    """Whether the old arm of a rollout must be able to serve all requests at once, for `back`."""
