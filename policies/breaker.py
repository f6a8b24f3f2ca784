"""A circuit breaker: stops calling an endpoint that keeps failing, then tries it one call at a time.

          failures in a row                  open_for over
    closed ─────────────────► open ─────────────────────────► half-open
       ▲                        ▲                              │     │
       │                        └─── the trial failed (×2) ────┘     │
       └──────────────────────────── the trial succeeded ────────────┘

(Nygard, "Release It!", 2007. One trial at a time, because a server that has just come back is the one that
a burst of trials would bring down again.)
"""

from math import inf
from typing import Literal

State = Literal["closed", "open", "half_open"]

LONGEST = 8  # times open_for: a dead endpoint is still tried now and then
LONGEST_REST = 30.0  # seconds


class Breaker:
    """Opens after `failures` consecutive ones, for `open_for` seconds, doubled by each failed trial.

    The caller asks `allows`, announces each call with `begin`, and ends it with exactly one of `success`,
    `failure` and `abandoned`. A call that is let through although `allows` says no (every endpoint of a pool
    is open, say) becomes the trial. Verdicts on calls begun before the breaker opened are ignored while it
    waits: they say nothing new. `failures` and `open_for` may be changed at any time; a wait that has begun
    keeps its end.

    Beside that, an endpoint may ask to be left alone (`rest`), whatever its calls came to.
    """

    __slots__ = ("_failed", "_open_until", "_rest_until", "_times", "_trial", "failures", "open_for")

    def __init__(self, failures: int, open_for: float) -> None:
        self.failures = failures
        self.open_for = open_for
        self._failed = 0
        self._times = 1  # how many times open_for it stays open
        self._open_until = -inf  # not open
        self._trial = -inf  # when the trial under way began
        self._rest_until = -inf

    def state(self, now: float) -> State:
        if self._open_until == -inf:
            return "closed"
        return "open" if now < self._open_until else "half_open"

    @property
    def is_open(self) -> bool:
        """Open or half-open: it has not proved itself again."""
        return self._open_until != -inf

    def allows(self, now: float) -> bool:
        """Whether a call may be made. Only looks, so that a pool may ask it of every endpoint."""
        # The second comparison forgives a trial that never reported: it must not block for ever.
        return now >= self._open_until and now >= self._rest_until and now >= self._trial + self.open_for

    def retry_after(self, now: float) -> float:
        """Seconds until `allows` may say yes; 0 when it does."""
        return max(0.0, self._open_until - now, self._rest_until - now, self._trial + self.open_for - now)

    def next_change(self, now: float) -> float:
        """Seconds until time alone changes what `allows` or `rests` says, or 0: one may matter before the other."""
        ends = (self._open_until, self._rest_until, self._trial + self.open_for)
        return min((end - now for end in ends if end > now), default=0.0)

    def rest(self, seconds: float, now: float) -> None:
        """The endpoint asked to be left alone for that long; half a minute is believed. The longest wish counts:
        answers to requests at the same time come in any order."""
        self._rest_until = max(self._rest_until, now + min(seconds, LONGEST_REST))

    def rests(self, now: float) -> float:
        """Seconds for which it asked to be left alone; 0 when it does not."""
        return max(0.0, self._rest_until - now)

    def begin(self, now: float) -> None:
        """A call was let through."""
        if self._open_until != -inf:
            self._trial = now

    def success(self, now: float) -> None:
        """The endpoint answered. A trial's success counts however late it comes."""
        if self._open_until == -inf or self._trial != -inf:
            self._close()

    def failure(self, now: float) -> None:
        """The endpoint is to blame. Failures of the caller are `abandoned`."""
        if self._open_until == -inf:
            self._failed += 1
            if self._failed >= self.failures:
                self._open_until = now + self._times * self.open_for
        elif self._trial != -inf:
            self._trial = -inf
            self._times = min(2 * self._times, LONGEST)
            self._open_until = now + self._times * self.open_for

    def trip(self, seconds: float, now: float) -> None:
        """Open for that long, for another reason than failures in a row."""
        self._trial = -inf
        self._open_until = max(self._open_until, now + seconds)

    def abandoned(self, now: float) -> None:
        """The call ended with no verdict: the client left, or the request itself was wrong."""
        self._trial = -inf

    def _close(self) -> None:
        self._failed = 0
        self._times = 1
        self._open_until = -inf
        self._trial = -inf
