"""The measured time of a start, and whether requests are expected because there were some a day or a week before."""

from collections import deque
from collections.abc import Collection

HOUR = 3600
DAY, WEEK = 24, 168


def expects(used: Collection[int], utc: float, lead: float) -> bool:
    """Whether the hour of this moment, or of `lead` seconds later, had requests a day or a week before.

    `used`: the hours with requests, as Unix time // 3600.
    """
    moments = {int(utc // HOUR), int((utc + lead) // HOUR)}
    return any(hour - before in used for hour in moments for before in (DAY, WEEK))


UNKNOWN = 10.0
"""Seconds that are assumed before the first measurement."""
RECENT = 5
"""Measurements that count: the longest of the last ones, since an estimate that is too short misleads clients."""
OVERDUE = 0.25
"""The part of the time so far that a start is assumed to need when it takes longer than every measurement."""


class StartTimes:
    """The start times of one pool's replicas."""

    __slots__ = ("_measured",)

    def __init__(self) -> None:
        self._measured: deque[float] = deque(maxlen=RECENT)

    @property
    def seconds(self) -> float | None:
        """The time of a start; None before the first measurement."""
        return max(self._measured, default=None)

    def measure(self, seconds: float) -> None:
        """Add the time of a start."""
        self._measured.append(seconds)


def remaining(measured: float | None, elapsed: float) -> float:
    """The seconds until a replica that started `elapsed` seconds ago serves."""
    return max((UNKNOWN if measured is None else measured) - elapsed, OVERDUE * elapsed, 0.0)
