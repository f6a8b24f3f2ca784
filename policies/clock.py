"""Windows of local time, and whether a moment is inside one."""

from datetime import UTC, datetime

from config.schema.config import TimeConfig

DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_WHOLE_DAY = (0, 24 * 60)


class Window:
    """A window of local time: `holds` takes Unix seconds. Changes to and from daylight saving time are applied.

    Time zones differ by whole minutes, so the result is computed once a minute.
    """

    __slots__ = ("_days", "_end", "_is_open", "_minute", "_start", "_written", "_zone")

    def __init__(self, config: TimeConfig) -> None:
        self._start, self._end = _WHOLE_DAY if config.between is None else _minutes(config.between)
        self._days = frozenset(map(DAYS.index, config.days or DAYS))
        self._zone = config.zone
        parts = (config.between, " ".join(config.days or ()), str(config.zone))
        self._written = " ".join(part for part in parts if part)
        self._minute = -1
        self._is_open = False

    def __str__(self) -> str:
        return self._written

    def holds(self, now: float) -> bool:
        minute = int(now // 60)
        if minute != self._minute:
            self._is_open = self._at(self._local(minute * 60))
            self._minute = minute
        return self._is_open

    def show(self, now: float) -> str:
        """The local time as text."""
        return self._local(now).strftime("%a %H:%M")

    def _local(self, now: float) -> datetime:
        return datetime.fromtimestamp(now, UTC).astimezone(self._zone)

    def _at(self, local: datetime) -> bool:
        minute, day = local.hour * 60 + local.minute, local.weekday()
        if self._start < self._end:
            return day in self._days and self._start <= minute < self._end
        # A window over midnight belongs to the day on which it began.
        return (minute >= self._start and day in self._days) or (minute < self._end and (day - 1) % 7 in self._days)


def _minutes(between: str) -> tuple[int, int]:
    """Start and end of ``HH:MM-HH:MM``, in minutes of the day."""
    start, end = (part.strip().split(":") for part in between.split("-"))
    return int(start[0]) * 60 + int(start[1]), int(end[0]) * 60 + int(end[1])
