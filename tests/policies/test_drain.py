from random import Random

import pytest

from policies.drain import ENOUGH, DrainRate


def measured(gaps: list[float], start: float = 0.0) -> tuple[DrainRate, float]:
    rate, now = DrainRate(), start
    rate.start(now)
    for gap in gaps:
        now += gap
        rate.freed(now)
    return rate, now


def test_the_pace_and_the_wait_behind_other_requests() -> None:
    rate, now = measured([0.5] * 20, start=1000.0)
    assert rate.gap(now) == pytest.approx(0.5)
    assert rate.wait(0, now) == pytest.approx(0.5)
    assert rate.wait(9, now) == pytest.approx(5.0)


def test_little_is_not_taken_for_knowledge() -> None:
    rate, now = measured([100.0] * (ENOUGH - 1))
    assert rate.wait(1000, now) == 0.0
    rate.freed(now + 100)
    assert rate.wait(1000, now + 100) == pytest.approx(100_100)


@pytest.mark.parametrize("burst", [2, 8, 32])
def test_bursts_are_not_taken_for_the_pace(burst: int) -> None:
    """Servers that answer in step free `burst` slots at once, every 10 s."""
    rate, now = measured(([10.0] + [0.0] * (burst - 1)) * 20)
    assert 0.4 < rate.gap(now) / (10.0 / burst) < 2.5


def test_a_change_of_pace_is_measured() -> None:
    rate, now = measured([1.0] * 100)
    for _ in range(100):
        now += 0.1
        rate.freed(now)
    assert 0.1 < rate.gap(now) < 0.15


def test_silence_counts() -> None:
    rate, now = measured([0.1] * 50)
    assert rate.gap(now + 0.1) == pytest.approx(0.1)
    assert rate.gap(now + 32) > 1.0


def test_idle_time_is_not_part_of_the_pace_and_ages_the_measurements() -> None:
    rate, now = measured([1.0] * 100)
    now += 10_000
    rate.start(now)
    rng = Random(1)
    for _ in range(20):
        now += rng.uniform(0.1, 0.3)
        rate.freed(now)
    assert rate.gap(now) < 0.6
