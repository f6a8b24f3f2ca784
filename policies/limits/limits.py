"""Limits of a tenant: rates (requests, tokens) and concurrency.

The amounts of rates are a plain tuple in a fixed order. Every request has two: its reservation and its usage.
"""

from math import inf
from typing import Literal, get_args

Rated = Literal["requests", "tokens", "rows", "bytes", "device_ms"]
RATED: tuple[Rated, ...] = get_args(Rated)
Amounts = tuple[float, float, float, float, float]
TOKENS = RATED.index("tokens")
NOTHING: Amounts = (0, 0, 0, 0, 0)


# Added to returned waits, so that rounding in `now + wait` cannot cause a second rejection.
_SLACK = 1e-6


class TokenBucket:
    """`amount` units every `period` seconds. A full bucket holds `amount`, the largest burst.

    Reserve an estimate with `take`, then `settle` the true cost, which may leave a debt that later takes
    wait for. In any interval of t seconds the bucket grants at most amount × (1 + t / period). (Turner, "New
    Directions in Communications", 1986; its admissions are those of the GCRA, ITU-T I.371.)

    A `now` earlier than a previous one counts as the latest: a clock set back adds no units.

    The whole state is `level`, below 0 for a debt, and `at`, the time of that level. A caller that stores the
    state elsewhere sets both before a call and reads both after it.
    """

    __slots__ = ("at", "capacity", "level", "rate")

    def __init__(self, amount: float, period: float, now: float) -> None:
        self.capacity = amount
        self.rate = _rate(amount, period)
        """Units per second."""
        self.level = amount
        self.at = now

    def take(self, n: float, now: float) -> float:
        """Take `n` units and return 0.0, or take nothing and return the seconds until `n` are available.

        More than the capacity can never be taken (the wait is infinite): reserve ``clamp(n)``.
        """
        elapsed = now - self.at  # as `refill`, without a call: every request takes and settles several times
        if elapsed > 0:
            self.at = now
            level = self.level + elapsed * self.rate
            self.level = level = level if level < self.capacity else self.capacity
        else:
            level = self.level
        if n <= level:
            self.level = level - n
            return 0.0
        return self.wait(n, now)

    def wait(self, n: float, now: float) -> float:
        """The result of `take`, without taking units."""
        level = self.refill(now)
        if n <= level:
            return 0.0
        if n > self.capacity:
            return inf
        return (n - level) / self.rate + _SLACK

    def clamp(self, n: float) -> float:
        """The units to reserve for an estimate of `n`: a full bucket at most; the rest is settled as debt."""
        return min(n, self.capacity)

    def settle(self, reserved: float, actual: float, now: float) -> None:
        """Return, or charge, the difference between the reserved and the actual units."""
        elapsed = now - self.at
        level = self.level
        if elapsed > 0:
            self.at = now
            level += elapsed * self.rate
            if level > self.capacity:
                level = self.capacity
        level += reserved - actual
        self.level = level if level < self.capacity else self.capacity

    def remaining(self, now: float) -> float:
        """Units that can be taken now; 0 in debt."""
        return max(0.0, self.refill(now))

    @property
    def seconds_to_full(self) -> float:
        """Seconds from `at` until the bucket is full."""
        return (self.capacity - self.level) / self.rate

    def resize(self, amount: float, period: float, now: float) -> None:
        """Set a new limit. The used share remains, so a reload has no effect on it."""
        rate = _rate(amount, period)
        self.level = self.refill(now) / self.capacity * amount
        self.capacity = amount
        self.rate = rate

    def refill(self, now: float) -> float:
        """Set and return the level at `now`; below 0 is debt."""
        elapsed = now - self.at
        if elapsed > 0:
            self.at = now
            level = self.level + elapsed * self.rate
            self.level = level if level < self.capacity else self.capacity
        return self.level


def _rate(amount: float, period: float) -> float:
    """Units per second."""
    if amount <= 0 or period <= 0:
        raise ValueError(f"a limit needs an amount and a period above 0, got {amount} per {period} s")
    return amount / period


class Concurrency:
    """At most `limit` concurrent requests. The limit may change at any time: requests above a lower limit finish."""

    __slots__ = ("in_flight", "limit")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.in_flight = 0

    def take(self) -> bool:
        if self.in_flight >= self.limit:
            return False
        self.in_flight += 1
        return True

    def release(self) -> None:
        """Release a successful `take`, once. Raises AssertionError for a release without a take."""
        if self.in_flight == 0:
            raise AssertionError("release() without a take()")
        self.in_flight -= 1
