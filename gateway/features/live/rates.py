"""Rates, quantiles and money of sums of a time."""

from collections.abc import Mapping
from typing import Any, Protocol, TypeVar

from config.schema.money import PICOS
from gateway.telemetry.figures import DIMENSIONS, NUMBERS, Figures, FigureSet, quantiles


class WithRequests(Protocol):
    """Anything with a number of requests."""

    requests: int


T = TypeVar("T", bound=WithRequests)
MOST_SHOWN = 50
"""Names of a dimension that a screen shows: those with the most requests."""
HOUR = 3600


def rates_of(figures: Figures, seconds: float) -> dict[str, Any]:
    """What happened a second, the money of an hour at this rate by currency, and the quantiles of times in seconds."""
    made: dict[str, Any] = {name: round(getattr(figures, name) / seconds, 4) for name in NUMBERS}
    for name, counts in (("", figures.durations), ("first_", figures.first_chunks)):
        for percent, value in zip((50, 95), quantiles(counts, (0.5, 0.95)), strict=True):
            made[f"{name}p{percent}"] = None if value is None else round(value, 5)
    made["money"] = {each: picos / PICOS * HOUR / seconds for each, picos in figures.picos.items()}
    return made


def rates_of_all(figures: FigureSet, seconds: float) -> dict[str, Any]:
    """The rates of all requests, of the largest names of each dimension, and of the causes of errors."""
    made: dict[str, Any] = {"all": rates_of(figures.all, seconds)}
    for dimension in DIMENSIONS:
        largest = largest_of(figures.named[dimension], MOST_SHOWN)
        made[dimension] = [{"name": name, **rates_of(each, seconds)} for name, each in largest]
    causes = [{"cause": name, "requests": round(number / seconds, 4)} for name, number in figures.causes.most_common()]
    return {**made, "causes": causes[:MOST_SHOWN]}


def largest_of(named: Mapping[str, T], most: int) -> list[tuple[str, T]]:
    """The names with the most requests, in this order."""
    return sorted(named.items(), key=lambda item: (-item[1].requests, item[0]))[:most]
