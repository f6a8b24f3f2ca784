"""A shadow in one process: bounds that workers share, and draws."""

from random import Random

import pytest

from config.schema.money import PICOS
from policies.shadowing.live import SAMPLE_SECONDS, LiveShadow
from policies.shadowing.pairs import ShadowSample
from policies.shadowing.planned import planned
from tests.support.shadows import shadowing


def live(workers: int = 1, **shadow: object) -> LiveShadow:
    (plan,) = planned(shadowing(**shadow))  # type: ignore[arg-type]
    made = LiveShadow(plan)
    made.configure(plan, workers)
    return made


@pytest.mark.parametrize("workers", [1, 2, 4, 8])
@pytest.mark.parametrize("rate", ["5/s", "60/min", "100/s"])
def test_workers_share_the_rate(workers: int, rate: str) -> None:
    """In a minute at most the rate of the file, and at first what each worker may send at once."""
    shadows = [live(workers, at_most={"requests": rate, "concurrency": 1000}) for _ in range(workers)]
    begun = 0
    for step in range(6000):
        for shadow in shadows:
            if not shadow.begin(step / 100):
                begun += 1
                shadow.end()
    amount, period = shadows[0].config.at_most.requests
    whole = amount * 60 / period
    assert whole <= begun <= whole + max(amount, workers)


def test_workers_share_the_concurrency() -> None:
    shadow = live(2, at_most={"concurrency": 4, "requests": "1000/s"})
    assert [shadow.begin(0.0) for _ in range(3)] == ["", "", "concurrency"]
    shadow.end()
    assert shadow.begin(0.0) == ""
    assert live(8, at_most={"concurrency": 4, "requests": "1000/s"}).begin(0.0) == ""


def test_a_reload_changes_the_bounds_at_once() -> None:
    shadow = live(at_most={"requests": "1/min"})
    assert [shadow.begin(0.0) for _ in range(2)] == ["", "rate"]
    (plan,) = planned(shadowing(at_most={"requests": "10/s"}, share="7%"))
    shadow.configure(plan, 1)
    assert shadow.begin(0.0) == ""
    assert shadow.config.share == 0.07


def test_the_share_and_the_noise_are_drawn() -> None:
    shadow, rng = live(share="10%", noise="25%"), Random(3)
    drawn = sum(shadow.draws(rng, None) for _ in range(10_000))
    repeated = sum(shadow.repeats(rng) for _ in range(10_000))
    assert 900 < drawn < 1100
    assert 2300 < repeated < 2700
    assert not any(live(noise="0%").repeats(rng) for _ in range(100))


def test_samples_are_bounded_in_number_and_time() -> None:
    shadow = live(samples=2)
    sample = ShadowSample(0.0, "r", {}, "", "", "")
    taken = 0
    for step in range(100):
        if shadow.takes_sample(step * SAMPLE_SECONDS / 2):
            shadow.add_sample(sample)
            taken += 1
    assert taken == 2
    assert len(shadow.take_samples()) == 2
    assert shadow.takes_sample(1000.0)
    assert not live().takes_sample(0.0)


@pytest.mark.parametrize("workers", [1, 2, 8])
def test_workers_share_the_spend_of_each_period(workers: int) -> None:
    """The cost within a day is at most the budget, and a new day has a new one. A reload has no effect on it."""
    at_most = {"requests": "1000/s", "concurrency": 1000, "spend": "8 usd/day"}
    shadows = [live(workers, at_most=at_most) for _ in range(workers)]
    unit = PICOS // 10
    for day in range(3):
        spent = 0
        for step in range(200):
            shadow = shadows[step % workers]
            (plan,) = planned(shadowing(at_most={**at_most, "requests": f"{1000 + step}/s"}))
            shadow.configure(plan, workers)
            if (held := shadow.reserve(2 * unit, day * 86400.0 + step)) is not None:
                held.picos = unit  # the estimate was twice the cost
                held.settle()
                spent += unit
        assert 8 * PICOS - 2 * unit * workers <= spent <= 8 * PICOS


def test_a_copy_of_an_earlier_period_is_not_charged_to_the_next() -> None:
    shadow = live(at_most={"requests": "1000/s", "spend": "1 usd/hour"})
    held = shadow.reserve(PICOS, 3599.0)
    assert held is not None
    assert shadow.reserve(1, 3599.5) is None
    later = shadow.reserve(PICOS, 3600.0)
    assert later is not None
    held.picos = 5 * PICOS
    held.settle()
    assert shadow.reserve(1, 3601.0) is None
    later.settle()  # without an answer it costs nothing
    assert shadow.reserve(PICOS, 3602.0) is not None


def test_without_a_spend_any_cost_is_reserved() -> None:
    held = live().reserve(10**18, 0.0)
    assert held is not None
    held.settle()
