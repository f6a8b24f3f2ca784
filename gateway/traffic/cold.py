"""Requests that wait for the first replica of a pool that has none, within their deadlines and within bounds."""

from collections.abc import Callable

from adapters.errors import Unavailable
from config.schema.runtimes.replicas import ScaleConfig
from gateway.traffic.standing import PoolStanding
from policies.scaling.starts import remaining

STARTING, FAILED = "model_starting", "model_start_failed"
SOONEST = 1.0
"""The shortest `retry-after`, in seconds."""


class ColdStart:
    """The start of a pool from zero, as a process that serves sees it. Another process may start the replicas, and
    reports their state."""

    def __init__(self, pool: str, config: ScaleConfig, clock: Callable[[], float]) -> None:
        self.config = config
        self._pool = pool
        self._clock = clock
        self._standing = PoolStanding(pool=pool)
        self._reported = clock()

    def report(self, standing: PoolStanding) -> None:
        """Apply the state of the pool's replicas."""
        self._standing, self._reported = standing, self._clock()

    def remaining(self, now: float) -> float:
        """Seconds until a replica serves, by measured starts."""
        starting = self._standing.starting
        elapsed = 0.0 if starting is None else starting + now - self._reported
        return remaining(self._standing.start_seconds, elapsed)

    def failure(self, now: float) -> Unavailable | None:
        """The error while no replica starts."""
        if not self._standing.failure:
            return None
        message = f"{self._pool}: the model does not start: {self._standing.failure}."
        return Unavailable(message, code=FAILED, retry_after=self._after(now)).because("start_failed", pool=self._pool)

    def is_too_late(self, due: float, now: float) -> bool:
        """Whether no replica will serve before a deadline, by a measured start."""
        return self._standing.start_seconds is not None and now + self.remaining(now) > due

    def is_full(self, waiting: int, size: int) -> bool:
        """Whether so many requests, with so many bytes, are more than may wait."""
        return waiting > self.config.max_held or size > self.config.max_held_size

    def error(self, why: str, now: float) -> Unavailable:
        """The error of a request that waits no longer, with the measured time of the start."""
        message = f"{self._pool}: the model is starting, and {why}."
        return Unavailable(message, code=STARTING, retry_after=self._after(now)).because("starting", pool=self._pool)

    def _after(self, now: float) -> float:
        return max(SOONEST, self.remaining(now))
