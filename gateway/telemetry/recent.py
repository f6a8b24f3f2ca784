"""What ended in the last seconds and minutes, for people who watch the gateway.

A second is complete some time after its end, because records arrive in batches. Ended seconds become a part of their
minute.
"""

from collections import Counter
from typing import Any, Final

from gateway.telemetry.figures import DIMENSIONS, MOST_NAMES, OTHERS, Figures, FigureSet
from gateway.telemetry.record import Record

WINDOW: Final = 5
"""Seconds of which rates are means: single requests would make them jump."""
MINUTE: Final = 60
_LATE = 2
"""Seconds after which a second is complete."""
RETAINED = WINDOW + _LATE + 2
_MINUTES = 5


class _Second:
    """Figures by model, tenant and pool together: one look-up for each request."""

    __slots__ = ("causes", "cells")

    def __init__(self) -> None:
        self.cells: dict[tuple[str, str, str], Figures] = {}
        self.causes: Counter[str] = Counter()

    def add_to(self, figures: FigureSet) -> None:
        for names, cell in self.cells.items():
            figures.all.add(cell)
            for dimension, name in zip(DIMENSIONS, names, strict=True):
                figures.of(dimension, name).add(cell)
        figures.add_causes(self.causes)


def _cause_of(record: Record) -> str:
    """Status and code; the cause of a refusal too if it says more, with the unit and the subject of a limit."""
    code = "" if record.error is None else record.error.code
    if (reason := record.reason) is None or reason.cause == code:
        return f"{record.status} {code}"
    unit, per = reason.facts.get("unit"), reason.facts.get("per")
    return f"{record.status} {code}: {reason.cause}{f' of {unit}' if unit else ''}{f' per {per}' if per else ''}"


class RecentTraffic:
    """`count` each ended request; `window` and `minutes` describe what has ended. Times are in Unix seconds."""

    def __init__(self) -> None:
        self._seconds: dict[int, _Second] = {}
        self._minutes: dict[int, FigureSet] = {}
        self._newest = 0

    def count(self, record: Record, tenant: str) -> None:
        """Count a request that has ended. `tenant` is the label of its tenant."""
        second = self._at(record.time)
        names = record.model, tenant, record.pool
        figures = second.cells.get(names)
        if figures is None:
            if len(second.cells) >= MOST_NAMES * len(DIMENSIONS):
                names = OTHERS, OTHERS, record.pool
            figures = second.cells.setdefault(names, Figures())
        figures.count(record)
        if record.error is not None:
            _count_cause(second.causes, _cause_of(record))

    def refused(self, status: int, code: str, now: float) -> None:
        """Count what the server refused before there was a request."""
        second = self._at(now)
        figures = second.cells.setdefault(("", "", ""), Figures())
        figures.requests += 1
        figures.refused += 1
        _count_cause(second.causes, f"{status} {code}")

    def window(self, now: float) -> dict[str, Any]:
        """The sums of the last `WINDOW` complete seconds, as JSON."""
        self._fold(int(now))
        figures, end = FigureSet(), int(now) - _LATE
        for number, second in self._seconds.items():
            if end - WINDOW <= number < end:
                second.add_to(figures)
        return figures.describe()

    def minutes(self, now: float) -> dict[str, Any]:
        """The sums of the last complete minutes, as JSON, by their number (Unix time // 60)."""
        self._fold(int(now))
        complete = (int(now) - RETAINED) // MINUTE
        return {str(number): figures.describe() for number, figures in self._minutes.items() if number < complete}

    def _at(self, time: float) -> _Second:
        number = int(time)
        second = self._seconds.get(number)
        if second is None:
            second = self._seconds[number] = _Second()
            self._fold(number)
        return second

    def _fold(self, now: int) -> None:
        """Add the seconds that no window has any more to their minutes. The clock may jump."""
        if now == self._newest:
            return
        self._newest = now
        for number in [each for each in self._seconds if abs(each - now) > RETAINED]:
            self._seconds.pop(number).add_to(self._minutes.setdefault(number // MINUTE, FigureSet()))
        for number in [each for each in self._minutes if abs(each - now // MINUTE) > _MINUTES]:
            del self._minutes[number]


def _count_cause(causes: Counter[str], cause: str) -> None:
    causes[cause if cause in causes or len(causes) < MOST_NAMES else OTHERS] += 1
