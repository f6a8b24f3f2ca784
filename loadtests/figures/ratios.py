"""From rounds to the reported figures: medians, spreads, and ours ÷ theirs."""

from collections.abc import Collection, Sequence
from statistics import median
from typing import NamedTuple

from loadtests.figures.rounds import Round


class Summary(NamedTuple):
    """The middle of some rounds, and their extremes."""

    median: float
    low: float
    high: float


def summarise(values: Sequence[float]) -> Summary | None:
    """None without a value."""
    return Summary(median(values), min(values), max(values)) if values else None


def subtract(one: Round, added: Collection[str], base: str) -> Round:
    """The round with the ``base`` target's value taken off every other's in the figures ``added``.

    Without a base value such a figure is unknown, and left out.
    """
    direct = one[base]
    return {
        name: (
            figures
            if name == base
            else {
                figure: value - (direct[figure] if figure in added else 0.0)
                for figure, value in figures.items()
                if figure not in added or figure in direct
            }
        )
        for name, figures in one.items()
    }


def values(rounds: Sequence[Round], target: str, figure: str) -> list[float]:
    """The result of all rounds for one target."""
    return [one[target][figure] for one in rounds if figure in one.get(target, {})]


def ratios(rounds: Sequence[Round], ours: str, theirs: str, figure: str) -> list[float]:
    """Ours ÷ theirs, round by round; a round where either was not above zero has none.

    (An added latency can come out below zero when it drowns in the noise of the direct one.)
    """
    pairs = [
        (one[ours][figure], one[theirs][figure])
        for one in rounds
        if figure in one.get(ours, {}) and figure in one.get(theirs, {})
    ]
    return [mine / other for mine, other in pairs if mine > 0 and other > 0]
