"""Compiled targets: a pool or a split between several, each with fallback steps."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from config.schema.config import Failure, FallbackConfig, SplitConfig, TargetConfig


class Split(NamedTuple):
    """A sticky weighted choice. `salt` makes it independent of every other split."""

    sticky: str
    salt: str
    arms: tuple[tuple[str, float], ...]
    targets: Mapping[str, Target]


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
    return Split(config.sticky, salt, arms, {arm.label: compiled(arm, f"{salt}/{arm.label}") for arm in config.arms})


def _step(config: FallbackConfig, salt: str) -> FallbackTarget:
    return FallbackTarget(frozenset(config.on), compiled(config, salt))
