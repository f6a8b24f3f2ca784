"""The ``rollout`` of a route: a gradual move of its requests from one arm to another."""

from collections.abc import Iterator, Sequence
from typing import Annotated, ClassVar, Literal, Self

from pydantic import AfterValidator, Field, model_validator
from pydantic.json_schema import JsonSchemaValue

from config.schema.copies import ShadowFirstConfig
from config.schema.rewrite import RewriteConfig
from config.schema.section import Conflict, Section, ShortSection
from config.schema.target import ArmConfig, SplitConfig, Sticky, share_of_requests, small_alpha
from config.schema.text import Name
from config.schema.units import Delay, Duration, Factor, Percent, TimeBound, format_time_bound
from config.schema.when import Version

RolloutMetric = Literal["failures", "first_byte", "total", "retries", "rejections", "blocked", "refusals", "feedback"]
TIMED: tuple[RolloutMetric, ...] = ("first_byte", "total")
"""Metrics whose event is a time above a bound."""


Alpha = Annotated[Percent, AfterValidator(small_alpha)]


class RolloutArmConfig(ShortSection):
    """One side of a rollout. A pool's name alone is short for ``{pool: NAME}``."""

    short = "pool"
    short_schema: ClassVar[JsonSchemaValue] = {"type": "string", "description": "A pool's name."}

    name: Name | None = None
    """Name in logs, metrics and ``x-headrace-arm``; the pool's or the model's name, and the version, when absent."""
    pool: Name | None = None
    """Pool that receives the requests."""
    model: Name | None = None
    """Another model of this file, with its routes or its pipeline, instead of a pool."""
    version: Version | None = None
    """Version of the model that the pool's servers receive, for models of tensors."""
    rewrite: RewriteConfig | None = None
    """Changes to the request, instead of the route's."""

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        if (self.pool is None) == (self.model is None):
            raise ValueError("has one target: give pool or model")
        return self

    @property
    def label(self) -> str:
        """The name of the arm."""
        version = f":{self.version}" if self.version else ""
        return self.name or f"{self.pool or self.model}{version}"


def split_of(sticky: Sticky, arms: Sequence[RolloutArmConfig], shares: Sequence[float]) -> SplitConfig:
    """Arms with their shares as a split."""
    return SplitConfig.model_construct(
        sticky=sticky,
        arms=tuple(
            ArmConfig.model_construct(name=arm.label, pool=arm.pool, split=None, fallback=(), weight=share)
            for arm, share in zip(arms, shares, strict=True)
        ),
    )


class RolloutStepConfig(Section):
    """A share of the requests, and how long it lasts at least."""

    weight: Annotated[Percent, AfterValidator(share_of_requests)]
    """Share of the requests that ``to`` receives."""
    least: Duration = Field(600.0, alias="for")
    """Shortest time of the step, warm-up included. It lasts longer until every condition of ``on_if`` is proven."""


class EventConfig(Section):
    """An event of a request."""

    metric: RolloutMetric
    """``failures``: the arm did not answer, after its retries and before any fallback. ``first_byte`` and ``total``:
    the answer began, or ended, later than ``slower_than``. ``retries``: the arm needed more than one attempt.
    ``rejections``: the arm's server rejected the request as wrong. ``blocked``: a guard of the arm's pipeline blocked
    it. ``refusals``: the answer of a language model refuses, by its field ``refusal``, its finish reason
    ``content_filter`` or its first words in English. ``feedback``: a client reported a bad value of the metric ``of``.
    """
    slower_than: TimeBound | None = None
    """Bound of ``first_byte`` and ``total``. Of ``first_byte`` also a quantile, p50 to p99: that of ``from``, or of the
    control, which is measured in the warm-up and then fixed."""
    of: Name | None = None
    """Metric of ``feedback``. Bad is "down", and false, or true if lower is better."""
    worse_than: float | None = Field(None, allow_inf_nan=False)
    """Bound of a metric of numbers: a value below it is bad, or a value above it if lower is better."""

    @property
    def key(self) -> str:
        """The name of the event in reports and metrics: ``first_byte>2s``."""
        if self.metric == "feedback":
            return f"feedback:{self.of}" if self.worse_than is None else f"feedback:{self.of}:{self.worse_than:g}"
        return self.metric if self.slower_than is None else f"{self.metric}>{format_time_bound(self.slower_than)}"

    def conflicts(self) -> Iterator[Conflict]:
        if self.metric not in TIMED:
            yield from self.inert(f"has no effect: {self.metric} has no time", "slower_than")
        if self.metric != "feedback":
            yield from self.inert("has no effect: it is for the metric feedback", "of", "worse_than")


class BackConfig(EventConfig):
    """A condition that takes the rollout back."""

    above: Factor = 1.0
    """Largest ratio of the rates of ``to`` and ``from`` that is accepted. The rollout goes back when the ratio is
    certainly above."""


class ProofConfig(EventConfig):
    """A condition that must be proven before the next step. Either bound is a proof."""

    below: Factor | None = None
    """The ratio of the rates of ``to`` and ``from`` is certainly below."""
    at_most: Annotated[Percent, AfterValidator(share_of_requests)] | None = None
    """The rate of ``to`` is certainly at most this. Proves a service without failures, which has no ratio."""

    @model_validator(mode="after")
    def _bounded(self) -> Self:
        if self.below is None and self.at_most is None:
            raise ValueError("proves nothing: give below, at_most or both")
        return self


class RolloutConfig(Section):
    """A gradual move from one arm to another. Each step lasts at least its time. Events of both arms are compared at
    every moment; the move is taken back when ``to`` is certainly worse."""

    kind: ClassVar[str] = "rollout"

    name: Name
    """Name of the rollout, and key of its state. A new name starts at the first step."""
    source: RolloutArmConfig = Field(alias="from")
    """Arm that has the requests now."""
    to: RolloutArmConfig
    """Arm that gets them."""
    sticky: Sticky = "request"
    """Subject that stays with its arm while its share does not shrink, as in ``split``. It is the unit of the
    comparison: each subject counts one event of each metric."""
    shadow_first: ShadowFirstConfig | None = None
    """Copies of requests whose answers must agree before the first step; none when absent."""
    steps: tuple[RolloutStepConfig, ...] = Field(min_length=1)
    """Shares of ``to``, rising. After the last step ``to`` has all requests."""
    warmup: Delay = 60.0
    """Time at the beginning of each step in which no event counts, in both arms."""
    back_if: tuple[BackConfig, ...] = (BackConfig.model_construct(metric="failures", above=1.2),)
    """Conditions that take it back."""
    on_if: tuple[ProofConfig, ...] = ()
    """Conditions for the next step; a step without alarm is enough when absent."""
    unproven: Literal["hold", "go_on", "back"] = "hold"
    """When a step ends and ``on_if`` is not proven: stay at this share until it is, go on, or go back."""
    requests: int = Field(100, ge=1, le=1_000_000_000)
    """Fewest requests of ``to``, or subjects if ``sticky`` is not ``request``, before a step may end: an idle arm
    proves nothing."""
    alpha: Alpha = 0.01
    """Probability that equal arms are taken back, over the whole rollout and all of its conditions."""
    keep: Delay = 86400.0
    """How long after the last step ``back`` still returns to ``from``. Until then its runtimes, connections and loaded
    versions remain, also if a reload removes its pool."""

    @property
    def split(self) -> SplitConfig:
        """The two arms, with the shares of the first step."""
        share = self.steps[0].weight
        return split_of(self.sticky, self.sides, (1 - share, share))

    @property
    def sides(self) -> Sequence[RolloutArmConfig]:
        """The arms."""
        return self.source, self.to

    @property
    def labels(self) -> tuple[str, ...]:
        """The names of the arms."""
        return self.source.label, self.to.label

    @property
    def first_shares(self) -> tuple[float, ...]:
        """The shares before anything is decided."""
        return 1.0, 0.0

    @property
    def counts_tokens(self) -> bool:
        """Whether the tokens of answers are counted."""
        return False

    def events(self) -> tuple[EventConfig, ...]:
        """Every event that is counted, once."""
        return tuple({event.key: event for event in (*self.back_if, *self.on_if)}.values())

    def conflicts(self) -> Iterator[Conflict]:
        last = 0.0
        for index, step in enumerate(self.steps):
            if step.weight <= last:
                message = "does not rise: each step has a larger weight than the one before"
                yield Conflict(("steps", index, "weight"), message, concerns_value=True)
            last = max(last, step.weight)
            if step.least <= self.warmup:
                message = "is over before the warm-up ends: no event would count"
                yield Conflict(("steps", index, "for"), message, concerns_value=True)
        if len(self.steps) == 1 and last == 1.0:
            yield from self.inert(
                "can never be proven: at 100% there are no requests of `from` to compare with", "on_if"
            )
        for index, condition in enumerate(self.on_if if self.sticky != "request" else ()):
            if condition.at_most is not None:
                message = "is a rate of requests, and with `sticky` each subject counts once: use below"
                yield Conflict(("on_if", index, "at_most"), message)
