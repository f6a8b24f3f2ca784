"""The bounds and the objective of a pool's replicas."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ScalingRules:
    """Times are seconds."""

    places: float
    """Requests that one replica serves at the same time."""
    least: int = 1
    """Replicas that always run. With 0, the pool scales to zero."""
    most: int = 10
    """Replicas that never are exceeded."""
    wait: float = 1.0
    """The objective: the longest time in the pool's queue."""
    late: float = 0.01
    """The share of requests that may wait longer than `wait`."""
    occupancy: float = 0.9
    """The share of a replica's KV cache or batch that may be in use before a replica is added."""
    hold: float = 600.0
    """A replica is removed when this time has passed without a need for it."""
    idle: float = 600.0
    """The last replica is removed after this time without a request."""

    def __post_init__(self) -> None:
        if not 0 <= self.least <= self.most:
            raise ValueError(f"`least` must be between 0 and `most` ({self.most}), not {self.least}")
        if self.places <= 0 or not 0 < self.late < 1 or not 0 < self.occupancy <= 1:
            raise ValueError("`places` must be positive, `late` between 0 and 1, `occupancy` above 0 and at most 1")
        if min(self.wait, self.hold, self.idle) < 0:
            raise ValueError("`wait`, `hold` and `idle` must not be negative")
