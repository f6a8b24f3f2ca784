"""The retry budget, the backoff before a retry, and the budget for continuing broken streams."""

from random import Random

from config.schema.route import LONGEST_BACKOFF

SLOTS = 10


class RetryBudget:
    """Retries within ``floor + ratio × requests`` over the last `window` seconds.

    A count per request (three tries) multiplies the load by three exactly when everything fails; a share of
    recent requests cannot. The floor lets a quiet service retry at all. (Finagle's RetryBudget; tower's
    `retry::budget::TpsBudget`.)

    The window slides in ten steps: it covers the current step and the nine before it.
    """

    __slots__ = (
        "_requests",
        "_request_slots",
        "_retries",
        "_retry_slots",
        "_step",
        "_tick",
        "floor",
        "ratio",
    )

    def __init__(self, ratio: float, window: float = 10.0, floor: float = 3) -> None:
        self.ratio = ratio
        self.floor = floor
        self._step = window / SLOTS
        self._tick = 0
        self._requests = 0
        self._retries = 0
        self._request_slots = [0] * SLOTS
        self._retry_slots = [0] * SLOTS

    def request(self, now: float) -> None:
        """Count a first attempt."""
        tick = int(now / self._step)
        slot = tick % SLOTS if tick == self._tick else self._slot(now)
        self._request_slots[slot] += 1
        self._requests += 1

    def allow(self, now: float, held: int = 0) -> bool:
        """Spend a retry if the budget allows it. `held` requests count independent of their time."""
        slot = self._slot(now)
        if self._retries + 1 > self.floor + self.ratio * (self._requests + held):
            return False
        self._retry_slots[slot] += 1
        self._retries += 1
        return True

    def _slot(self, now: float) -> int:
        """The slot of `now`, after clearing expired slots. An earlier `now` counts as the latest."""
        tick = int(now / self._step)
        if tick > self._tick:
            for passed in range(max(self._tick + 1, tick - SLOTS + 1), tick + 1):
                self._empty(passed % SLOTS)
            self._tick = tick
        return self._tick % SLOTS

    def _empty(self, slot: int) -> None:
        self._requests -= self._request_slots[slot]
        self._retries -= self._retry_slots[slot]
        self._request_slots[slot] = self._retry_slots[slot] = 0


def backoff(attempt: int, base: float, rng: Random) -> float:
    """Seconds to wait after the failure of the `attempt`-th attempt (from 1).

    Full jitter: uniform between 0 and ``base × 2^(attempt - 1)``, at most 2 s, so that requests
    that failed together are not retried together. (Brooker, "Exponential Backoff and Jitter", AWS Architecture Blog,
    2015.)
    """
    return rng.random() * min(LONGEST_BACKOFF, base * 2.0 ** (attempt - 1))


def rested(retry_after: float, rng: Random) -> float | None:
    """Seconds to wait for an endpoint that requires a pause of `retry_after`; None if the wait is over 2 s.

    The result is never less, and up to half more, so that waiting requests are not retried together.
    """
    return retry_after * rng.uniform(1.0, 1.5) if retry_after <= LONGEST_BACKOFF else None


MOST_RESUMES = 2
"""Maximum of resumes for one stream."""


class ResumeBudget:
    """As many resumes in ten seconds as streams are open, and three.

    A stream may last for minutes, so a share of recent requests would not be meaningful. If an endpoint fails, all
    of its streams can be resumed once; successive failures of endpoints cannot cause a storm of resumes.
    """

    __slots__ = ("_budget", "open")

    def __init__(self) -> None:
        self._budget = RetryBudget(1.0)
        self.open = 0
        """The number of open streams."""

    def allow(self, now: float) -> bool:
        """Spend a resume if the budget allows it."""
        return self._budget.allow(now, self.open)
