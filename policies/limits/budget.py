"""Budgets for each hour, day or month of the calendar, in UTC.

A part of a shared amount may be leased in advance, so that requests use it without a round trip.
"""

from datetime import UTC, datetime, timedelta

from config.schema.money import Period


def window(period: Period, now: float) -> tuple[float, float]:
    """Start and end, in Unix seconds, of the hour, day or month of UTC that contains `now` (Unix seconds).

    Half open: the end is the start of the next window. Leap seconds do not exist in Unix time.
    """
    moment = datetime.fromtimestamp(now, UTC)
    if period == "hour":
        start = moment.replace(minute=0, second=0, microsecond=0)
        return start.timestamp(), (start + timedelta(hours=1)).timestamp()
    start = moment.replace(hour=0, minute=0, second=0, microsecond=0)
    if period == "day":
        return start.timestamp(), (start + timedelta(days=1)).timestamp()
    start = start.replace(day=1)
    return start.timestamp(), (start + timedelta(days=31)).replace(day=1).timestamp()


class CalendarBudget:
    """`amount` whole units for each window. Neither the rest nor the excess is carried over.

    Reserve an estimate with `take`, then `settle` the actual amount. Estimates are reserved until they are settled, so
    concurrent requests cannot exceed the budget together: a window is charged at most `amount`, plus the amount by
    which its last requests in flight were underestimated.

    A request is charged to the window in which it began, even if it ends in a later one. A `now` earlier than a
    previous one counts as the latest: a clock set back does not reopen an old window.
    """

    __slots__ = ("amount", "end", "period", "start", "used", "window")

    def __init__(self, amount: int, period: Period, now: float) -> None:
        self.amount = amount
        self.period = period
        self.used = 0
        self.window = 0
        """The number of the window. `settle` needs the number at the time of `take`."""
        self.start, self.end = window(period, now)
        """Bounds of the window, in Unix seconds. With `used` and `window` they are the whole state."""

    def take(self, n: int, now: float) -> float:
        """Take `n` units and return 0.0, or take nothing and return the seconds until the next window."""
        if now >= self.end:
            self._roll(now)
        if self.used + n <= self.amount:
            self.used += n
            return 0.0
        return self.reset(now)

    def wait(self, n: int, now: float) -> float:
        """The result of `take`, without taking units."""
        reset = self.reset(now)
        return 0.0 if self.used + n <= self.amount else reset

    def clamp(self, n: int) -> int:
        """The units to reserve for an estimate of `n`: the whole budget at most; the rest is settled later."""
        return min(n, self.amount)

    def settle(self, reserved: int, actual: int, window: int) -> None:
        """Replace the reserved units of a window by the actual ones. A past window is ignored."""
        if window == self.window:
            self.used = max(0, self.used + actual - reserved)  # a new limit has no such reservation

    def remaining(self, now: float) -> int:
        """Units that can be taken now; 0 if overdrawn."""
        if now >= self.end:
            self._roll(now)
        return max(0, self.amount - self.used)

    def reset(self, now: float) -> float:
        """Seconds until the next window."""
        if now >= self.end:
            self._roll(now)
        return self.end - max(now, self.start)

    def resize(self, amount: int, period: Period, now: float) -> None:
        """Set a new limit. The used units of the window remain used, also in the first window of a new period."""
        if now >= self.end:
            self._roll(now)
        if period != self.period:
            self.start, self.end = window(period, now)
        self.amount, self.period = amount, period

    def _roll(self, now: float) -> None:
        self.start, self.end = window(self.period, now)
        self.window += 1
        self.used = 0


CHUNK = 20
"""A lease holds up to 1/CHUNK of the amount, and its overdraft has the same limit."""


class Lease:
    """`level` is the leased amount; below 0, the overdraft: at most 1/CHUNK of the amount, or one request."""

    __slots__ = ("amount", "level", "most")

    def __init__(self, amount: float) -> None:
        self.amount = amount
        self.most = max(1, amount // CHUNK)
        self.level: float = 0

    def has(self, n: float) -> bool:
        """Whether `take(n)` is allowed."""
        return self.level - n >= -self.most or self.level >= 0

    def take(self, n: float) -> float:
        """Take `n`, at most the whole amount. Returns the taken amount."""
        n = min(n, self.amount)
        self.level -= n
        return n

    def demand(self, *, idle: bool) -> float:
        """The amount to request; below 0, the amount to return, taken out at once. An idle lease returns all."""
        if idle or self.level > 2 * self.most:
            excess = max(0, self.level - (0 if idle else self.most))
            if excess:
                self.level -= excess
                return -excess
        aim = 0 if idle else self.most
        return max(0, aim - self.level) if self.level < (aim + 1) // 2 else 0
