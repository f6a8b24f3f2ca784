"""How quickly those that wait are served, as measured."""

NEW = 1 / 32
"""What a new measurement counts for: servers that answer in step free their slots in bursts, and a burst of up to
this many must not look like the pace of the whole."""
ENOUGH = 8


class DrainRate:
    """A mean of the time between two places that become free while someone waits for one.

    Only a full pool shows how quickly it can answer, so nothing is measured while nobody waits.
    """

    __slots__ = ("_gap", "_last", "_seen")

    def __init__(self) -> None:
        self._gap = 0.0
        self._last = 0.0
        self._seen = 0

    def start(self, now: float) -> None:
        """Somebody waits again. What was measured before is worth less, for much may have changed."""
        self._last = now
        self._seen = min(self._seen, ENOUGH)

    def freed(self, now: float) -> None:
        """A place became free, and who waited has it."""
        self._seen += 1
        self._gap += (now - self._last - self._gap) * max(NEW, 1 / self._seen)
        self._last = now

    def gap(self, now: float) -> float:
        """Seconds; 0 while too little is known. Silence counts, as if it ended now."""
        if self._seen < ENOUGH:
            return 0.0
        return self._gap + max(0.0, now - self._last - self._gap) * NEW

    def wait(self, ahead: float, now: float) -> float:
        """Seconds until the turn of one who has that many before him; 0 while too little is known."""
        return (ahead + 1) * self.gap(now)
