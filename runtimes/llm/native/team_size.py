"""The number of threads that compute a step: all of them, or fewer while other programs use the cores.

The threads of a step meet at some three hundred barriers. When another program has the core of one of them, the others
wait, and a thread more makes the step longer. Linux counts how long a thread waits for a core: cores that are lost to
other programs show there, and the short turns of the server and its clients do not.
"""

CROWDED = 0.35
"""Cores that the threads of a team wait for, on average, from which fewer threads are faster."""
CALM = 0.1
"""Cores up to which another thread is tried."""

_WINDOW, _TRIAL = 0.2, 0.05
_SHORTEST, _LONGEST = 0.4, 12.0


class TeamSize:
    """Counts in seconds of steps, without a clock. A trial that fails doubles the time to the next, and one that
    succeeds halves it."""

    def __init__(self, threads: int) -> None:
        self.threads = threads
        self.size = threads
        self._waited = self._elapsed = 0.0
        self._hold = _SHORTEST
        self._rested = 0.0
        self._trying = False

    def after(self, waited: float, elapsed: float) -> int:
        """The threads of the next step. The last one lasted `elapsed` seconds, and its threads waited `waited`
        seconds for a core, all together."""
        self._waited += waited
        self._elapsed += elapsed
        if self._elapsed >= (_TRIAL if self._trying else _WINDOW):
            self._decide(self._waited / self._elapsed)
            self._waited = self._elapsed = 0.0
        return self.size

    def _decide(self, lost: float) -> None:
        tried, self._trying = self._trying, False
        if self.size > 1 and lost > CROWDED:
            self.size = max(1, self.size - max(1, round(lost)))
            self._hold = min(_LONGEST, 2 * self._hold) if tried else _SHORTEST
            self._rested = 0.0
            return
        if tried:
            self._hold = max(_SHORTEST, self._hold / 2)
        self._rested = self._rested + self._elapsed if lost <= CALM * self.size else 0.0
        if self.size < self.threads and self._rested >= self._hold:
            self.size += 1
            self._rested, self._trying = 0.0, True
