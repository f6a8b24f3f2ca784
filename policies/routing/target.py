"""Where a decision leads, compiled: a pool, or a choice between several, each with steps to fall back to."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from config.schema.config import Failure, FallbackConfig, SplitConfig, TargetConfig


class Split(NamedTuple):
    """A sticky weighted choice. `salt` keeps it apart from every other split."""

    sticky: str
    salt: str
    arms: tuple[tuple[str, float], ...]
    targets: Mapping[str, Target]


class Step(NamedTuple):
    """Where to go after failures of these classes."""

    on: frozenset[Failure]
    target: Target


@dataclass(frozen=True, slots=True)
class Target:
    """Either `pool` or `split`, then the steps to fall back to, in order."""

    pool: str | None
    split: Split | None
    fallback: tuple[Step, ...]

    def pools(self) -> Iterator[str]:
        """In the order in which they are tried; a split's arms in the order of the file."""
        if self.pool is not None:
            yield self.pool
        for target in self.split.targets.values() if self.split else ():
            yield from target.pools()
        for step in self.fallback:
            yield from step.target.pools()


def compiled(config: TargetConfig, salt: str) -> Target:
    """`salt` names the place: a split that stays in it keeps its subjects where they are."""
    split = None if config.split is None else _split(config.split, salt)
    steps = (_step(entry, f"{salt}^{i}") for i, entry in enumerate(config.fallback))
    return Target(config.pool, split, tuple(steps))


def chain(pool: str, steps: tuple[Step, ...]) -> Target:
    """A pool, then those of the steps that lead elsewhere than where was tried already."""
    kept: dict[object, Step] = {}
    for step in steps:
        place: object = (step.target.pool, step.on) if _is_plain(step.target) else id(step)
        if not _is_plain(step.target) or step.target.pool != pool:
            kept.setdefault(place, step)
    return Target(pool, None, tuple(kept.values()))


def _is_plain(target: Target) -> bool:
    return target.pool is not None and not target.fallback


def _split(config: SplitConfig, salt: str) -> Split:
    arms = tuple((arm.label, arm.weight) for arm in config.arms)
    return Split(config.sticky, salt, arms, {arm.label: compiled(arm, f"{salt}/{arm.label}") for arm in config.arms})


def _step(config: FallbackConfig, salt: str) -> Step:
    return Step(frozenset(config.on), compiled(config, salt))
