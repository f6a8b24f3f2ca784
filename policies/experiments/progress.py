"""An experiment as it is stored: its status, the counts of each set of shares, and the sums of its values."""

from collections.abc import Sequence
from typing import Literal

import msgspec

from policies.rollouts.tally import ArmCounts, ShareOrder
from policies.sequential.effect import EffectSum

ExperimentStatus = Literal["running", "held", "decided", "over", "stopped"]
FIRST_COMPARED = 2
"""The first stratum that is compared. The two before it are the halves of the baseline."""


class ExperimentStratum(msgspec.Struct):
    """The counts of all processes while the arms had one set of shares."""

    shares: tuple[float, ...]
    assigned: ArmCounts
    ended: ArmCounts
    events: dict[str, ArmCounts] = msgspec.field(default_factory=dict)
    first_byte: list[dict[int, int]] = msgspec.field(default_factory=list)
    values: dict[str, ArmCounts] = msgspec.field(default_factory=dict)
    """The number of values of each metric."""


def fresh_stratum(shares: Sequence[float]) -> ExperimentStratum:
    """A stratum without counts."""
    return ExperimentStratum(tuple(shares), [0] * len(shares), [0] * len(shares))


class MetricSums(msgspec.Struct):
    """The values of one metric, in [0, 1], one for each subject."""

    counts: list[int]
    """By arm."""
    totals: list[float]
    pairs: list[EffectSum]
    """Of each two arms, in the order of `pairs_of`."""
    predicted: int = 0
    """Values with a prediction from the baseline."""
    scale: str = ""
    """The scale of the values, as configured."""


def pairs_of(arms: int) -> list[tuple[int, int]]:
    """Each two arms: the first one before the second."""
    return [(i, j) for i in range(arms) for j in range(i + 1, arms)]


class ExperimentProgress(msgspec.Struct):
    """The state of one experiment. `policies.experiments.decide` changes it, one process stores it."""

    name: str
    fingerprint: str
    generation: int = 1
    """Grows when the experiment starts anew, so that late counts and values of the arms before do not count."""
    status: ExperimentStatus = "running"
    reason: str = ""
    """Why it is held, over or stopped."""
    winner: int | None = None
    elapsed: float = 0.0
    """Seconds since the begin, as the deciding processes measured them."""
    shared_at: float = 0.0
    """The elapsed seconds at the last change of the shares."""
    shares: tuple[float, ...] = ()
    """The shares in force; none before the first decision."""
    stratum: int | None = None
    """The stratum under which requests count; None while nothing counts."""
    strata: list[ExperimentStratum] = msgspec.field(default_factory=list)
    subjects_from: int = FIRST_COMPARED
    """The first stratum of the sample-ratio tests: an operator has accepted those before."""
    subjects: dict[str, int] = msgspec.field(default_factory=dict)
    """The number of counted subjects, by the key of their event."""
    metrics: dict[str, MetricSums] = msgspec.field(default_factory=dict)
    dropped: dict[int, str] = msgspec.field(default_factory=dict)
    """Arms that a guard has stopped, with the key of its event."""
    covariate: tuple[float, float] | None = None
    """Of the baseline: theta and the mean value; None without one, or before its end."""
    measured: dict[int, int] = msgspec.field(default_factory=dict)
    """The times of the control before the comparison, if a guard has a quantile of them as its bound."""
    bounds: dict[str, float] = msgspec.field(default_factory=dict)
    """Seconds that are events, by the key of such a guard."""
    read: int = 0
    """The number of the last value that counts."""
    pointed_at: float = 0.0
    """The elapsed seconds at the last point of the time series."""

    def order(self) -> ShareOrder:
        """What every process applies."""
        return ShareOrder(self.name, self.fingerprint, self.generation, self.shares, self.stratum, self.bounds)

    def started_anew(self, fingerprint: str) -> "ExperimentProgress":
        """The same experiment before its begin."""
        return ExperimentProgress(self.name, fingerprint, self.generation + 1)

    @property
    def compared(self) -> list[ExperimentStratum]:
        """The strata after the baseline."""
        return self.strata[FIRST_COMPARED:]
