"""The measured rate at which a queue is served."""

NEW = 1 / 32
"""The weight of a new measurement: servers that answer in step free their slots in bursts, and a burst of up to 32
must not look like the rate of the pool."""
ENOUGH = 8


class DrainRate:
    """The mean time between two free slots while requests wait.

    Only a full pool shows its rate, so nothing is measured while the queue is empty.
    """

    __slots__ = ("_gap", "_last", "_seen")

    def __init__(self) -> None:
        self._gap = 0.0
        self._last = 0.0
        self._seen = 0

    def start(self, now: float) -> None:
        """Record that the queue is no longer empty. Earlier measurements lose weight, as conditions may have
        changed."""
        self._last = now
        self._seen = min(self._seen, ENOUGH)

    def freed(self, now: float) -> None:
        """Record that a waiting request received a free slot."""
        self._seen += 1
        self._gap += (now - self._last - self._gap) * max(NEW, 1 / self._seen)
        self._last = now

    def gap(self, now: float) -> float:
        """The mean in seconds; 0 before enough measurements. The time since the last free slot counts too."""
        if self._seen < ENOUGH:
            return 0.0
        return self._gap + max(0.0, now - self._last - self._gap) * NEW

    def wait(self, ahead: float, now: float) -> float:
        """Seconds until the turn of a request behind `ahead` others; 0 before enough measurements."""
        return (ahead + 1) * self.gap(now)
