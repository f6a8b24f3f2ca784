"""loadtests.figures.rounds: the order of targets, and what becomes of a disturbed round."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadtests.figures.rounds import ATTEMPTS_PER_ROUND, in_order, run
from loadtests.gateways.workloads import Point
from loadtests.servers import Gateway, Launch, Target

pytestmark = pytest.mark.plain


def target(name: str) -> Target:
    return Target(Gateway(name, Path, lambda _site, _path: Launch([])), 1, 1, "")


TARGETS = [target("direct"), target("ours"), target("theirs")]


def test_every_other_round_runs_backwards() -> None:
    names = [[t.name for t in in_order(TARGETS, index)] for index in range(3)]
    assert names == [
        ["direct", "ours", "theirs"],
        ["theirs", "ours", "direct"],
        ["direct", "ours", "theirs"],
    ]


@given(st.lists(st.booleans(), max_size=80), st.integers(1, 5))
def test_a_disturbed_round_is_dropped_whole_and_tried_again_within_a_bound(noise: list[bool], rounds: int) -> None:
    coming = iter(noise)
    calls: list[str] = []
    calmed: list[int] = []

    def measure(one: Target) -> Point:
        calls.append(one.name)
        return Point({"cpu": 1.0}, 0, 0.9 if next(coming, False) else 0.1)

    seen = run(TARGETS, rounds, measure, 0.25, lambda: calmed.append(len(calls)))
    assert all(set(one) == {"direct", "ours", "theirs"} for one in seen.accepted)
    assert len(seen.accepted) + seen.dropped <= rounds * ATTEMPTS_PER_ROUND
    assert len(seen.accepted) == rounds or len(seen.accepted) + seen.dropped == rounds * ATTEMPTS_PER_ROUND
    assert seen.dropped == len(calmed) == sum(noise[: len(calls)])


def test_a_disturbed_point_ends_its_round_at_once() -> None:
    points = iter([Point({}, 0, 0.0), Point({}, 0, 0.5)])
    calls = []

    def measure(one: Target) -> Point:
        calls.append(one.name)
        return next(points, Point({}, 0, 0.0))

    run(TARGETS, 1, measure, 0.25, lambda: None)
    assert calls == ["direct", "ours", "direct", "ours", "theirs"]


def test_a_target_with_wrong_answers_has_no_figures_and_is_counted() -> None:
    def measure(one: Target) -> Point:
        return Point({}, 7, 0.0) if one.name == "theirs" else Point({"rps": 5.0}, 0, 0.0)

    seen = run(TARGETS, 2, measure, 0.25, lambda: None)
    assert seen.failed == {"theirs": 14}
    assert [one["theirs"] for one in seen.accepted] == [{}, {}]
