"""A rollout as it is stored: its status, its step, and the counts of each share that it had."""

from typing import Literal

import msgspec

from policies.rollouts.tally import MEASURING, ArmCounts, ShareOrder

RolloutStatus = Literal["running", "held", "back", "done"]
SHADOW = "shadow"
KEEP_ENDED = "keep ended"
Reason = str
"""Why a rollout has its status: ``shadow``, ``paused``, ``unproven``, ``sample ratio``, ``keep ended``, or the key of
an event."""


class Stratum(msgspec.Struct):
    """The counts of all processes while `to` had one share."""

    share: float
    step: int
    assigned: ArmCounts = msgspec.field(default_factory=lambda: [0, 0])
    ended: ArmCounts = msgspec.field(default_factory=lambda: [0, 0])
    events: dict[str, ArmCounts] = msgspec.field(default_factory=dict)
    first_byte: list[dict[int, int]] = msgspec.field(default_factory=lambda: [{}, {}])
    bounds: dict[str, float] = msgspec.field(default_factory=dict)
    """Seconds that are events from then on, by the key of an event whose bound is a quantile of `from`."""


class RolloutProgress(msgspec.Struct):
    """The state of one rollout. `policies.rollouts.decide` changes it, one process stores it."""

    name: str
    fingerprint: str
    generation: int = 1
    """Grows when the rollout starts anew, so that late counts of the arms before do not count."""
    status: RolloutStatus = "running"
    reason: Reason = ""
    step: int = 0
    elapsed: float = 0.0
    """Seconds in the step, as the deciding processes measured them; since the end if the rollout is done."""
    share: float = 0.0
    """Share of `to` in force."""
    counting: bool = False
    """Whether requests count, under the last of the strata."""
    strata: list[Stratum] = msgspec.field(default_factory=list)
    subjects_from: int = 0
    """The first stratum of the sample-ratio test: an operator has accepted the strata before."""
    subjects: dict[str, int] = msgspec.field(default_factory=dict)
    """The number of counted subjects, by the key of their event."""
    shadowed: bool = False
    """Whether the answers of copies agree, so that the first step may begin."""
    measuring: bool = False
    """Whether the times of a warm-up are counted, for the bounds of the next stratum."""
    measured: dict[int, int] = msgspec.field(default_factory=dict)
    """The times of `from` in this warm-up."""
    read: int = 0
    """The number of the last value of clients that counts."""

    def order(self) -> ShareOrder:
        """The state that every process applies."""
        stratum = len(self.strata) - 1 if self.counting else MEASURING if self.measuring else None
        bounds = self.strata[-1].bounds if self.counting else {}
        shares, shadows = (1 - self.share, self.share), (self.status, self.reason) == ("running", SHADOW)
        warm = self.status in ("running", "held") or (self.status == "done" and self.reason != KEEP_ENDED)
        return ShareOrder(self.name, self.fingerprint, self.generation, shares, stratum, bounds, shadows, warm)

    def started_anew(self, fingerprint: str) -> "RolloutProgress":
        """The same rollout before its first step."""
        return RolloutProgress(self.name, fingerprint, self.generation + 1)
