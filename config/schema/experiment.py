"""The ``experiment`` of a route: several arms, compared by a metric that clients report as ``feedback``."""

from collections.abc import Iterator, Sequence
from typing import Annotated, ClassVar, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from config.schema.rollout import Alpha, BackConfig, EventConfig, RolloutArmConfig, split_of
from config.schema.section import Conflict, Section
from config.schema.target import SplitConfig, Sticky
from config.schema.text import Name
from config.schema.units import Delay, Duration, Percent

THUMBS = {"up": 1.0, "down": 0.0}
MOST_METRICS = 32


class FeedbackMetricConfig(Section):
    """One metric of the values that clients report for the subjects of experiments and rollouts."""

    name: Name
    """Name of the metric in reports of clients and in experiments."""
    type: Literal["boolean", "thumbs", "number"] = "boolean"
    """``boolean``: true or false. ``thumbs``: "up" or "down". ``number``: a number from ``min`` to ``max``."""
    better: Literal["higher", "lower"] = "higher"
    """Whether higher values are better, where true is higher than false and "up" than "down"."""
    min: float | None = Field(None, allow_inf_nan=False)
    """Least number."""
    max: float | None = Field(None, allow_inf_nan=False)
    """Greatest number."""
    within: Duration = 86400.0
    """Time after a request in which its values are accepted."""

    @model_validator(mode="after")
    def _bounded(self) -> Self:
        low, high = self.min, self.max
        if self.type != "number" and (low is not None or high is not None):
            raise ValueError("only a metric of type number has min and max")
        if self.type == "number" and (low is None or high is None or not low < high):
            raise ValueError("a number needs min and max, with min below max: larger values are refused")
        if self.type == "thumbs" and self.better == "lower":
            raise ValueError('"up" is better than "down": give the type boolean for a metric that is better when lower')
        return self

    @property
    def span(self) -> float:
        """The greatest value less the least."""
        return 1.0 if self.min is None or self.max is None else self.max - self.min

    @property
    def least(self) -> float:
        """The least value."""
        return self.min or 0.0

    @property
    def scale(self) -> str:
        """A text that changes with the scale of the values: those of two scales do not add up."""
        return f"{self.type} {self.min} {self.max}"

    def scaled(self, value: object) -> float | None:
        """The value in [0, 1]; None for a value of another type or out of range."""
        if self.type == "thumbs":
            return THUMBS.get(value) if isinstance(value, str) else None
        if self.type == "boolean":
            return float(value) if isinstance(value, bool) else None
        if isinstance(value, bool) or not isinstance(value, int | float):
            return None
        assert self.min is not None
        assert self.max is not None
        return (value - self.min) / self.span if self.min <= value <= self.max else None

    @property
    def expected(self) -> str:
        """The accepted values, for error messages."""
        if self.type == "number":
            return f"a number from {self.min:g} to {self.max:g}"
        return "true or false" if self.type == "boolean" else '"up" or "down"'


MOST_ARMS = 16


def _floor(share: float) -> float:
    if not 0.01 <= share <= 0.5:
        raise ValueError("a floor is from 1% to 50%: without requests, nothing is learned about an arm")
    return share


class ExperimentArmConfig(RolloutArmConfig):
    """One arm of an experiment. A pool's name alone is short for ``{pool: NAME}``."""

    weight: float = Field(1.0, gt=0, le=1_000_000, allow_inf_nan=False)
    """Share of the requests, relative to the other arms."""


class ExperimentConfig(Section):
    """A comparison of several arms by a metric of ``feedback``. The first arm is the control."""

    kind: ClassVar[str] = "experiment"

    name: Name
    """Name of the experiment, and key of its state. A new name starts anew."""
    sticky: Sticky = "request"
    """Subject that stays with its arm, as in ``split``. It is the unit of the comparison: the first value of each
    subject counts."""
    arms: tuple[ExperimentArmConfig, ...] = Field(min_length=2, max_length=MOST_ARMS)
    """Arms with their weights. The first one is the control, which the others are compared with."""
    metric: Name
    """Metric of ``feedback`` that decides. The others are reported."""
    decide: Literal["sequential", "thompson"] = "sequential"
    """``sequential``: the shares stay until a winner is certain. ``thompson``: better arms get more requests
    meanwhile."""
    alpha: Alpha = 0.05
    """Probability that equal arms have a winner, over the whole experiment."""
    floor: Annotated[Percent, AfterValidator(_floor)] = 0.05
    """Least share of an arm with ``thompson``."""
    every: Duration = 3600.0
    """Time between two changes of the shares with ``thompson``."""
    guards: tuple[BackConfig, ...] = (BackConfig.model_construct(metric="failures", above=1.2),)
    """Events that an arm may not have more often than the control. An arm that certainly has is stopped."""
    warmup: Delay = 60.0
    """Begin of which nothing counts, in every arm."""
    baseline: Delay = 0.0
    """Time before the comparison in which the control has all requests. The values that its subjects report then
    reduce the variance of those that they report later (CUPED)."""
    longest: Duration | None = None
    """Time after which the experiment ends without a winner; without a limit when absent."""
    then: Literal["hold", "winner"] = "hold"
    """At the end: the shares stay, or all requests go to the winner. Without a winner they go to the control."""

    @model_validator(mode="after")
    def _possible(self) -> Self:
        if self.decide == "thompson" and self.floor * len(self.arms) > 1:
            raise ValueError(f"{len(self.arms)} arms cannot each have a floor of {self.floor:.0%}")
        return self

    @property
    def sides(self) -> Sequence[RolloutArmConfig]:
        """The arms."""
        return self.arms

    @property
    def labels(self) -> tuple[str, ...]:
        """The names of the arms."""
        return tuple(arm.label for arm in self.arms)

    @property
    def shares(self) -> tuple[float, ...]:
        """The configured shares of the arms."""
        total = sum(arm.weight for arm in self.arms)
        return tuple(arm.weight / total for arm in self.arms)

    @property
    def first_shares(self) -> tuple[float, ...]:
        """The shares before anything is decided."""
        return (1.0, *(0.0 for _ in self.arms[1:]))

    @property
    def split(self) -> SplitConfig:
        """The arms with their configured shares."""
        return split_of(self.sticky, self.arms, self.shares)

    @property
    def counts_tokens(self) -> bool:
        """Whether the tokens of answers are counted."""
        return False

    def events(self) -> tuple[EventConfig, ...]:
        """Every event that is counted, once."""
        return tuple({event.key: event for event in self.guards}.values())

    def conflicts(self) -> Iterator[Conflict]:
        if self.baseline and self.sticky == "request":
            message = (
                "has no effect with `sticky: request`: no subject has values before the comparison. Use user or key"
            )
            yield from self.inert(message, "baseline")
        if self.longest is not None and self.longest <= self.baseline + self.warmup:
            yield Conflict(("longest",), "is over before the comparison begins", concerns_value=True)
        if self.decide != "thompson":
            yield from self.inert("has no effect without `decide: thompson`: the shares stay", "floor", "every")
