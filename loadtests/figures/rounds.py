"""Rounds: every target once under the same workload, close together in time.

A host drifts by tens of per cent within minutes, so only measurements of one round are compared. The
order is reversed every other round, so that drift within a round favours no target. A round in which
something else used the machine is dropped whole, counted, and tried again.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from loadtests.gateways.workloads import Point

ATTEMPTS_PER_ROUND = 3

Round = Mapping[str, Mapping[str, float]]  # target → figure → value


class Named(Protocol):
    """What is measured: a server of some kind."""

    @property
    def name(self) -> str: ...


T = TypeVar("T", bound=Named)


@dataclass(slots=True)
class Rounds:
    """The rounds of one workload."""

    accepted: list[Round] = field(default_factory=list)
    dropped: int = 0
    failed: Counter[str] = field(default_factory=Counter)  # wrong or missing answers, by target


def in_order(targets: Sequence[T], index: int) -> list[T]:
    """Forwards in even rounds, backwards in odd ones."""
    return list(targets) if index % 2 == 0 else list(reversed(targets))


def run(
    targets: Sequence[T],
    required: int,
    measure: Callable[[T], Point],
    foreign_limit: float,
    calm_down: Callable[[], None],
) -> Rounds:
    """Measures until ``required`` rounds are accepted, or three times as many were tried.

    ``calm_down`` is called after a dropped round, to wait for the machine to become quiet.
    """
    rounds = Rounds()
    for _ in range(required * ATTEMPTS_PER_ROUND):
        if len(rounds.accepted) == required:
            break
        one = _round(in_order(targets, len(rounds.accepted)), measure, foreign_limit, rounds.failed)
        if one is None:
            rounds.dropped += 1
            calm_down()
        else:
            rounds.accepted.append(one)
    return rounds


def _round(
    targets: Sequence[T], measure: Callable[[T], Point], foreign_limit: float, failed: Counter[str]
) -> Round | None:
    """None as soon as one point was disturbed: the rest of the round would be thrown away."""
    seen: dict[str, Mapping[str, float]] = {}
    for target in targets:
        point = measure(target)
        if point.foreign_cores > foreign_limit:
            return None
        if point.failed:
            failed[target.name] += point.failed
        seen[target.name] = point.figures
    return seen
