"""How much a tenant may use: a rate (requests, tokens) and a number at once."""

from math import inf

# Returned waits are this much too long, so that rounding in `now + wait` cannot refuse a second time.
_SLACK = 1e-6


class TokenBucket:
    """`amount` units every `period` seconds; a full bucket holds `amount`, which is so the largest burst.

    Reserve an estimate with `take`, then `settle` on the true cost, which may leave a debt that later takes
    wait for. In any stretch of t seconds it grants at most amount × (1 + t / period). (Turner, "New
    Directions in Communications", 1986; its admissions are those of the GCRA, ITU-T I.371.)

    A `now` earlier than one seen before counts as the latest seen: going back mints nothing.

    Its whole state is `level`, below 0 for a debt, and `at`, the time of that level: who keeps them elsewhere
    sets them before a call and reads them after.
    """

    __slots__ = ("_rate", "at", "capacity", "level")

    def __init__(self, amount: float, period: float, now: float) -> None:
        self.capacity = amount
        self._rate = _rate(amount, period)
        self.level = amount
        self.at = now

    def take(self, n: float, now: float) -> float:
        """0.0 when `n` units were taken, else the seconds to wait until they could be; nothing is taken then.

        More than the capacity can never be taken (the wait is infinite): reserve ``clamp(n)``.
        """
        level = self._refill(now)
        if n <= level:
            self.level = level - n
            return 0.0
        return self.wait(n, now)

    def wait(self, n: float, now: float) -> float:
        """What `take` would return; takes nothing."""
        level = self._refill(now)
        if n <= level:
            return 0.0
        if n > self.capacity:
            return inf
        return (n - level) / self._rate + _SLACK

    def clamp(self, n: float) -> float:
        """What to reserve for an estimate of `n`: a full bucket at most, the rest is settled as debt."""
        return min(n, self.capacity)

    def settle(self, reserved: float, actual: float, now: float) -> None:
        """Gives back, or charges, the difference between what was taken and what was used."""
        self.level = min(self.capacity, self._refill(now) + reserved - actual)

    def remaining(self, now: float) -> float:
        """Units that can be taken now; 0 in debt."""
        return max(0.0, self._refill(now))

    def reset(self, now: float) -> float:
        """Seconds until the bucket is full."""
        return (self.capacity - self._refill(now)) / self._rate

    def resize(self, amount: float, period: float, now: float) -> None:
        """A new limit; the used share stays what it was, so a reload neither forgives nor punishes."""
        rate = _rate(amount, period)
        self.level = self._refill(now) / self.capacity * amount
        self.capacity = amount
        self._rate = rate

    def _refill(self, now: float) -> float:
        """The level at `now`; below 0 is debt."""
        elapsed = now - self.at
        if elapsed > 0:
            self.at = now
            self.level = min(self.capacity, self.level + elapsed * self._rate)
        return self.level


def _rate(amount: float, period: float) -> float:
    """Units a second."""
    if amount <= 0 or period <= 0:
        raise ValueError(f"a limit needs an amount and a period above 0, got {amount} per {period} s")
    return amount / period


class Concurrency:
    """At most `limit` at once. The limit may be changed at any time: those over a lower one finish."""

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
        """Once for each `take` that said yes; AssertionError on one more, which is a bug of the caller."""
        if self.in_flight == 0:
            raise AssertionError("release() without a take()")
        self.in_flight -= 1
