"""A rollout as it is stored: its status, its step, and the counts of each share that it had.

The fingerprint is the identity of the arms. Counts of other arms have no meaning for these.
"""

import json
from collections.abc import Mapping
from hashlib import blake2b
from typing import Literal

import msgspec

from config.schema.config import PoolConfig
from config.schema.experiment import ExperimentConfig
from config.schema.rollout import RolloutArmConfig, RolloutConfig
from policies.rollouts.tally import MEASURING, ArmCounts, ShareOrder

_SERVED = {"protocol", "model", "runtime"}
"""The fields of a pool that decide its answers. Endpoints may come and go."""


def fingerprint(config: RolloutConfig | ExperimentConfig, pools: Mapping[str, PoolConfig]) -> str:
    """A text that changes with the arms and with the subjects, but not with steps, conditions or endpoints."""
    parts = [config.sticky, *(arm_identity(arm, pools) for arm in config.sides)]
    if isinstance(config, ExperimentConfig):
        parts.append(config.metric)  # a metric that is selected after its values are known has no valid verdict
    return blake2b("\n".join(parts).encode(), digest_size=16).hexdigest()


def arm_identity(arm: RolloutArmConfig, pools: Mapping[str, PoolConfig]) -> str:
    """A text that changes with the answers of an arm."""
    pool = pools.get(arm.pool or "")
    served = None if pool is None else pool.model_dump(mode="json", include=_SERVED)
    return json.dumps([arm.model_dump(mode="json", exclude={"name", "weight"}), served], sort_keys=True)


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
