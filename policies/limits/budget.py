"""Budgets of the calendar: so much in each hour, day or month, in UTC."""

from datetime import UTC, datetime, timedelta

from config.schema.money import Period


def window(period: Period, now: float) -> tuple[float, float]:
    """Start and end, in Unix seconds, of the hour, day or month of UTC that `now` (Unix seconds) lies in.

    Half open: the end is the next one's start. Leap seconds do not exist in Unix time.
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
    """`amount` whole units for each window; what is left at its end is gone, and so is what was overdrawn.

    Reserve an estimate with `take`, then `settle` on the truth. Estimates are held until they are settled, so
    requests at the same time cannot pass the budget together: what a window is charged is at most `amount`,
    and beyond it by how much the requests that were in flight when it ran out had been underestimated.

    A request is charged to the window in which it began, also where it ends in a later one. A `now` earlier
    than one seen before counts as the latest seen: a clock that is set back opens no old window again.
    """

    __slots__ = ("amount", "end", "period", "start", "used", "window")

    def __init__(self, amount: int, period: Period, now: float) -> None:
        self.amount = amount
        self.period = period
        self.used = 0
        self.window = 0
        """Counts the windows: what a `take` was in, its `settle` must name."""
        self.start, self.end = window(period, now)
        """Of the window, in Unix seconds. With `used` and `window` all the state there is."""

    def take(self, n: int, now: float) -> float:
        """0.0 when `n` were taken, else the seconds until the next window; nothing is taken then."""
        if now >= self.end:
            self._roll(now)
        if self.used + n <= self.amount:
            self.used += n
            return 0.0
        return self.reset(now)

    def wait(self, n: int, now: float) -> float:
        """What `take` would return; takes nothing."""
        reset = self.reset(now)
        return 0.0 if self.used + n <= self.amount else reset

    def clamp(self, n: int) -> int:
        """What to reserve for an estimate of `n`: the whole budget at most, the rest is settled."""
        return min(n, self.amount)

    def settle(self, reserved: int, actual: int, window: int) -> None:
        """Replace what was taken in that window by the truth; a window that is over is no longer counted."""
        if window == self.window:
            self.used = max(0, self.used + actual - reserved)  # a limit that came anew never held the reserve

    def remaining(self, now: float) -> int:
        """What can be taken now; 0 when overdrawn."""
        if now >= self.end:
            self._roll(now)
        return max(0, self.amount - self.used)

    def reset(self, now: float) -> float:
        """Seconds until the next window."""
        if now >= self.end:
            self._roll(now)
        return self.end - max(now, self.start)

    def resize(self, amount: int, period: Period, now: float) -> None:
        """A new limit; what was used in the window stays used, and is held so by a new period's first window."""
        if now >= self.end:
            self._roll(now)
        if period != self.period:
            self.start, self.end = window(period, now)
        self.amount, self.period = amount, period

    def _roll(self, now: float) -> None:
        self.start, self.end = window(self.period, now)
        self.window += 1
        self.used = 0
