"""The measurements of a pool between two decisions."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ScalingFacts:
    """The measurements of one interval, which ends now."""

    demand: float
    """Requests in progress and in the queue: the mean over the interval."""
    waiting: int = 0
    """Requests in the queue now."""
    ready: int = 0
    """Replicas that serve requests."""
    starting: int = 0
    """Replicas that have begun to start."""
    begun: int = 0
    """Requests that left the queue in the interval."""
    late: int = 0
    """Of `begun`, the requests that waited longer than the objective."""
    occupancy: float = 0.0
    """The mean share of KV caches or batches in use, of the replicas that report it."""
    floor: int = 0
    """Replicas that a schedule requires now."""
