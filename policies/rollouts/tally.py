"""Counts of a rollout while its arms have one share: they add up over requests, processes and gateways."""

import msgspec

Pair = list[int]
"""A count of each arm: `from`, then `to`."""


class ArmTally(msgspec.Struct, omit_defaults=True):
    """Counts since the last report."""

    assigned: Pair = msgspec.field(default_factory=lambda: [0, 0])
    """Requests that got an arm; subjects, if subjects stay with their arm."""
    ended: Pair = msgspec.field(default_factory=lambda: [0, 0])
    """Requests whose end says something about the arm: all but those that the client cancelled."""
    events: dict[str, Pair] = msgspec.field(default_factory=dict)
    """By the key of the event."""
    subjects: dict[str, dict[int, int]] = msgspec.field(default_factory=dict)
    """By the key of an event, or by "" for the assignment: the arm of each subject that this process counts first."""
    first_byte: tuple[dict[int, int], dict[int, int]] = msgspec.field(default_factory=lambda: ({}, {}))
    """Of each arm, the times of the first byte in logarithmic bins."""

    def add(self, other: "ArmTally") -> None:
        """Add the counts of another process. Subjects remain subjects."""
        for arm in (0, 1):
            self.assigned[arm] += other.assigned[arm]
            self.ended[arm] += other.ended[arm]
            for number, count in other.first_byte[arm].items():
                self.first_byte[arm][number] = self.first_byte[arm].get(number, 0) + count
        for key, (source, to) in other.events.items():
            pair = self.events.setdefault(key, [0, 0])
            pair[0] += source
            pair[1] += to
        for key, arms in other.subjects.items():
            self.subjects[key] = {**arms, **self.subjects.get(key, {})}


class StratumTally(msgspec.Struct):
    """The counts of one process under one share of one rollout."""

    rollout: str
    generation: int
    stratum: int
    tally: ArmTally


class ShareOrder(msgspec.Struct, frozen=True):
    """What a process applies: the share of `to`, and the stratum under which it counts."""

    rollout: str
    fingerprint: str
    generation: int
    share: float
    stratum: int | None = None
    """None: nothing is counted, such as during a warm-up."""
