from math import exp

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.balancing.signals import DECAY, PeakEwma

seconds = st.floats(0, 1e3)


def answer(latency: PeakEwma, seconds: float, now: float) -> None:
    latency.sent(now)
    latency.answered(seconds, now)


def test_a_rise_counts_at_once_and_a_fall_slowly() -> None:
    latency = PeakEwma()
    answer(latency, 0.1, 0.0)
    answer(latency, 2.0, 0.0)
    assert latency.value(0.0) == 2.0
    answer(latency, 0.1, 1.0)
    assert latency.value(1.0) == pytest.approx(0.1 + 1.9 * exp(-1 / DECAY))


def test_an_old_measurement_decays() -> None:
    latency = PeakEwma()
    answer(latency, 8.0, 0.0)
    assert latency.value(DECAY) == pytest.approx(8.0 / exp(1))
    assert latency.value(100 * DECAY) < 1e-6


def test_a_quick_failure_does_not_look_quick_and_a_slow_one_looks_slow() -> None:
    latency = PeakEwma()
    answer(latency, 1.0, 0.0)
    latency.sent(0.0)
    latency.unanswered(0.001, 5.0)
    assert latency.value(5.0) == pytest.approx(exp(-5 / DECAY))
    latency.sent(5.0)
    latency.unanswered(30.0, 35.0)
    assert latency.value(35.0) == 30.0


@given(st.lists(st.tuples(seconds, st.floats(0, 60)), min_size=1, max_size=30))
def test_the_value_is_within_the_measurements(samples: list[tuple[float, float]]) -> None:
    latency, now = PeakEwma(), 0.0
    for value, gap in samples:
        now += gap
        answer(latency, value, now)
        assert value <= latency.value(now) * (1 + 1e-9)
    assert latency.value(now) <= max(value for value, _ in samples) * (1 + 1e-9)


def test_a_clock_that_steps_back_changes_nothing() -> None:
    latency = PeakEwma()
    answer(latency, 1.0, 10.0)
    assert latency.value(0.0) == 1.0


def test_silence_counts_while_a_request_waits() -> None:
    latency = PeakEwma()
    answer(latency, 0.1, 0.0)
    latency.sent(5.0)
    latency.sent(6.0)
    assert latency.value(25.0) == 20.0
    latency.answered(20.0, 25.0)
    assert latency.value(25.0) == 20.0
    assert latency.value(1025.0) == 1000.0
    latency.unanswered(1019.0, 1025.0)
    assert latency.value(1025.0) == 1019.0
    assert latency.value(2025.0) < 1e-6
