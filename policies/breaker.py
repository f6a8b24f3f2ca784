"""A circuit breaker: stops calls to a failing endpoint, then tries it one call at a time.

          failures in a row                  open_for over
    closed ─────────────────► open ─────────────────────────► half-open
       ▲                        ▲                              │     │
       │                        └─── the trial failed (×2) ────┘     │
       └──────────────────────────── the trial succeeded ────────────┘

(Nygard, "Release It!", 2007. One trial at a time, because a burst of trials would overload a server that has just
recovered.)
"""

from math import inf
from typing import Literal

State = Literal["closed", "open", "half_open"]

LONGEST = 8  # in multiples of open_for, so that a dead endpoint is still tried
LONGEST_REST = 30.0  # seconds


class Breaker:
    """Opens after `failures` consecutive failures, for `open_for` seconds, doubled by each failed trial.

    The caller checks `allows`, records each call with `begin`, and ends it with exactly one of `success`,
    `failure` and `abandoned`. A call that is made although `allows` is false (if every endpoint of a pool is
    open, for example) becomes the trial. While the breaker is open, results of calls that began before are
    ignored: they are not new. `failures` and `open_for` may change at any time; the end of a wait that has
    begun remains.

    Independently, an endpoint may require a pause (`rest`).
    """

    __slots__ = ("_failed", "_open_until", "_rest_until", "_times", "_trial", "failures", "open_for")

    def __init__(self, failures: int, open_for: float) -> None:
        self.failures = failures
        self.open_for = open_for
        self._failed = 0
        self._times = 1  # the multiple of open_for for which it stays open
        self._open_until = -inf  # not open
        self._trial = -inf  # the start of the current trial
        self._rest_until = -inf

    def state(self, now: float) -> State:
        if self._open_until == -inf:
            return "closed"
        return "open" if now < self._open_until else "half_open"

    @property
    def is_open(self) -> bool:
        """Whether the breaker is open or half-open: no trial has succeeded yet."""
        return self._open_until != -inf

    def allows(self, now: float) -> bool:
        """Whether a call may be made. Changes no state, so that a pool may check every endpoint."""
        # The last comparison expires a trial without a result, which must not block for ever.
        return now >= self._open_until and now >= self._rest_until and now >= self._trial + self.open_for

    def retry_after(self, now: float) -> float:
        """Seconds until `allows` may return true; 0 if it does now."""
        return max(0.0, self._open_until - now, self._rest_until - now, self._trial + self.open_for - now)

    def next_change(self, now: float) -> float:
        """Seconds until the result of `allows` or `rests` changes by time alone; 0 if it changes
        neither."""
        ends = (self._open_until, self._rest_until, self._trial + self.open_for)
        return min((end - now for end in ends if end > now), default=0.0)

    def rest(self, seconds: float, now: float, longest: float = LONGEST_REST) -> None:
        """Record that the endpoint requires a pause, of at most `longest` seconds. The longest pause counts, as
        concurrent requests end in any order."""
        self._rest_until = max(self._rest_until, now + min(seconds, longest))

    def rests(self, now: float) -> float:
        """Seconds of the pause that the endpoint requires; 0 for none."""
        return max(0.0, self._rest_until - now)

    def begin(self, now: float) -> None:
        """Record the start of a call."""
        if self._open_until != -inf:
            self._trial = now

    def success(self, now: float) -> None:
        """Record an answer. The success of a trial counts even if it is late."""
        if (self._failed and self._open_until == -inf) or self._trial != -inf:
            self._close()

    def failure(self, now: float) -> None:
        """Record a failure that the endpoint caused. Failures of the caller are `abandoned`."""
        if self._open_until == -inf:
            self._failed += 1
            if self._failed >= self.failures:
                self._open_until = now + self._times * self.open_for
        elif self._trial != -inf:
            self._trial = -inf
            self._times = min(2 * self._times, LONGEST)
            self._open_until = now + self._times * self.open_for

    def trip(self, seconds: float, now: float) -> None:
        """Open for `seconds`, for another reason than consecutive failures."""
        self._trial = -inf
        self._open_until = max(self._open_until, now + seconds)

    def abandoned(self, now: float) -> None:
        """Record a call without a result: the client left, or the request itself was wrong."""
        self._trial = -inf

    def _close(self) -> None:
        self._failed = 0
        self._times = 1
        self._open_until = -inf
        self._trial = -inf
