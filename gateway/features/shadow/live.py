"""The shadows of one process, the times of their answers, and the prices of their copies.

A reload preserves the shadows that compare the same.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from config.schema.config import Config, RolloutArmConfig
from gateway.telemetry.histogram import Histogram
from policies.limits.price import Price
from policies.shadowing.live import LiveShadow
from policies.shadowing.pairs import AnswerTimes, PairTally, ShadowSample
from policies.shadowing.planned import planned

BOUNDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
PRIMARY, SHADOW = "primary", "shadow"


class LiveShadows:
    """Shadows by name."""

    def __init__(self) -> None:
        self.by_name: Mapping[str, LiveShadow] = {}

    def configure(self, config: Config) -> None:
        """Apply a configuration."""
        configured: dict[str, LiveShadow] = {}
        for plan in planned(config):
            live = self.by_name.get(plan.name)
            if live is None or live.plan.identity != plan.identity:
                live = LiveShadow(plan)
            live.configure(plan, config.workers)
            configured[plan.name] = live
        self.by_name = configured

    def take(self) -> dict[tuple[str, str], PairTally]:
        """The counts since the last report, by name and identity."""
        taken = ((live, live.take()) for live in self.by_name.values())
        return {(live.name, live.plan.identity): tally for live, tally in taken if tally is not None}

    def take_samples(self) -> dict[tuple[str, str], list[ShadowSample]]:
        """The samples since the last report, by name and identity."""
        taken = ((live, live.take_samples()) for live in self.by_name.values())
        return {(live.name, live.plan.identity): samples for live, samples in taken if samples}


class CopyPrices:
    """The prices of a configuration's models."""

    def __init__(self) -> None:
        self._prices: Mapping[str, Price] = {}

    def configure(self, config: Config) -> None:
        """Apply a configuration."""
        self._prices = {model.name: Price(model.price) for model in config.models if model.price is not None}

    def of(self, model: str, to: RolloutArmConfig) -> Price | None:
        """The price of an answer of a target: its model's, or that of the route's `model`. None if it has none."""
        return self._prices.get(to.model or model)


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
