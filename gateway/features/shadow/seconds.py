"""Histograms of the times of compared answers, for the metrics of a process."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from gateway.telemetry.histogram import Histogram
from policies.shadowing.pairs import AnswerTimes

BOUNDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
PRIMARY, SHADOW = "primary", "shadow"


class AnswerHistograms(NamedTuple):
    """The times of one shadow's answers, or of the clients' answers that they are compared with."""

    first_byte: Histogram
    total: Histogram


class CopySeconds:
    """Histograms by the name of the shadow and by the answer."""

    def __init__(self) -> None:
        self._by_answer: dict[tuple[str, str], AnswerHistograms] = {}

    def observe(self, shadow: str, primary: AnswerTimes, other: AnswerTimes) -> None:
        """Count both answers to one copied request."""
        for answer, times in ((PRIMARY, primary), (SHADOW, other)):
            histograms = self._by_answer.get((shadow, answer))
            if histograms is None:
                histograms = self._by_answer[shadow, answer] = AnswerHistograms(Histogram(BOUNDS), Histogram(BOUNDS))
            histograms.first_byte.observe(times.first_byte)
            histograms.total.observe(times.total)

    def of(self, shadows: Iterable[str]) -> Iterator[tuple[tuple[str, str], AnswerHistograms]]:
        """The histograms of these shadows. Those of others are dropped."""
        names = frozenset(shadows)
        self._by_answer = {key: value for key, value in self._by_answer.items() if key[0] in names}
        return iter(self._by_answer.items())
