"""The result of the rules for one request, with its compiled targets: a pool or a split, each with fallback steps."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from config.schema.config import (
    CacheConfig,
    Failure,
    FallbackConfig,
    HedgeConfig,
    Priority,
    RetryConfig,
    SplitConfig,
    TargetConfig,
    TimeoutConfig,
)
from config.schema.telemetry import TraceContentConfig
from policies.routing.rewrite import Rewrite

if TYPE_CHECKING:  # for routes that compare or balance
    from policies.rollouts.live import LiveComparison
    from policies.routing.arm_balance import ArmBalance
    from policies.shadowing.live import LiveShadow


class Split(NamedTuple):
    """A sticky weighted choice. `salt` makes it independent of every other split."""

    sticky: str
    salt: str
    arms: tuple[tuple[str, float], ...]
    targets: Mapping[str, Target]
    balance: ArmBalance | None = None
    """How the arm is chosen at the time of a request; None by weight."""


class FallbackTarget(NamedTuple):
    """The target after failures of some classes."""

    on: frozenset[Failure]
    target: Target


@dataclass(frozen=True, slots=True)
class Target:
    """Either `pool`, `split` or `model`, then the fallback steps in order."""

    pool: str | None
    split: Split | None
    fallback: tuple[FallbackTarget, ...]
    model: str | None = None
    """Another model that answers instead of a pool: an arm of a rollout."""

    def pools(self) -> Iterator[str]:
        """The pools in the order of attempts; a split's arms in the order of the configuration."""
        if self.pool is not None:
            yield self.pool
        for target in self.split.targets.values() if self.split else ():
            yield from target.pools()
        for step in self.fallback:
            yield from step.target.pools()


def compiled(config: TargetConfig, salt: str) -> Target:
    """Compile a target. `salt` names its position: a split in the same position places its subjects the same way."""
    split = None if config.split is None else _split(config.split, salt)
    steps = (_step(entry, f"{salt}^{i}") for i, entry in enumerate(config.fallback))
    return Target(config.pool, split, tuple(steps))


def chain(pool: str, steps: tuple[FallbackTarget, ...]) -> Target:
    """A target of one pool, with the steps that lead to other pools."""
    unique: dict[object, FallbackTarget] = {}
    for step in steps:
        place: object = (step.target.pool, step.on) if _is_plain(step.target) else id(step)
        if not _is_plain(step.target) or step.target.pool != pool:
            unique.setdefault(place, step)
    return Target(pool, None, tuple(unique.values()))


def _is_plain(target: Target) -> bool:
    return target.pool is not None and not target.fallback


def _split(config: SplitConfig, salt: str) -> Split:
    arms = tuple((arm.label, arm.weight) for arm in config.arms)
    targets = {arm.label: compiled(arm, f"{salt}/{arm.label}") for arm in config.arms}
    if config.by is None:
        return Split(config.sticky, salt, arms, targets)
    from policies.routing.arm_balance import ArmBalance

    return Split(config.sticky, salt, arms, targets, ArmBalance.of(config))


def _step(config: FallbackConfig, salt: str) -> FallbackTarget:
    return FallbackTarget(frozenset(config.on), compiled(config, salt))


@dataclass(frozen=True, slots=True)
class Decision:
    """A decision, built when the rules are compiled and shared by all its requests."""

    route: int
    """Index of the route in its model."""
    name: str | None
    """The route's name, if any."""
    target: Target
    """The chosen pool and its fallbacks."""
    arm: str | None
    """The chosen arm of the split; the arms of nested splits are joined by ``>``. None without a split."""
    rewrite: Rewrite | None
    retry: RetryConfig
    timeout: TimeoutConfig
    model: str = ""
    """The model's name as configured."""
    hedge: HedgeConfig | None = None
    cache: CacheConfig | None = None
    priority: Priority | None = None
    """The priority in a pool's queue; None for the tenant's priority."""
    calls_models: bool = False
    """Whether models answer instead of pools: those of a pipeline, or an arm that is a model."""
    strict: bool = False
    """Whether a field that the model does not support is rejected."""
    elsewhere_first: bool = False
    """Whether a request waits for a full pool only if no other pool of the decision has a free slot."""
    hide_model_errors: bool = False
    """Whether the model's own error text is withheld from clients."""

    trace_content: TraceContentConfig | None = None
    """The texts in exported traces; None for none."""
    comparison: LiveComparison | None = None
    """The rollout or the experiment that chose this decision."""
    side: int = 0
    """The number of its arm: in a rollout 0 for `from`, 1 for `to`."""
    version: str = ""
    """The version of the model that the servers receive, if the arm sets it."""
    shadow: LiveShadow | None = None
    """The copies of its requests; None without a shadow."""

    @property
    def pools(self) -> tuple[str, ...]:
        """The chosen pool, then its fallbacks, without duplicates."""
        return tuple(dict.fromkeys(self.target.pools()))
