import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.hedge import EVERY, LEAST, WINDOW, Fixed, MeasuredDelay, Quantile, patience


@given(st.lists(st.floats(0, 100), min_size=1, max_size=2 * WINDOW), st.sampled_from([0.5, 0.9, 0.95, 0.999]))
def test_a_quantile_is_that_of_the_recent_past(measured: list[float], share: float) -> None:
    quantile = Quantile(share)
    for seconds in measured:
        quantile.observe(seconds)
    if len(measured) < LEAST:
        assert quantile.value is None
        return
    renewed = max(LEAST, len(measured) // EVERY * EVERY)
    recent = measured[max(0, renewed - WINDOW) : renewed]
    assert quantile.value is not None
    assert sum(seconds < quantile.value for seconds in recent) <= share * len(recent)
    assert sum(seconds <= quantile.value for seconds in recent) >= min(share * len(recent), len(recent) - 1)


def test_streams_and_whole_answers_are_measured_separately() -> None:
    measured = MeasuredDelay(0.5)
    for _ in range(LEAST):
        measured.observe(0.25, stream=True)
    assert measured.seconds(stream=True) == 0.25
    assert measured.seconds(stream=False) is None


@pytest.mark.parametrize(("after", "seconds"), [("200ms", 0.2), ("3s", 3.0)])
def test_a_fixed_one_learns_nothing(after: str, seconds: float) -> None:
    fixed = patience(after)
    assert isinstance(fixed, Fixed)
    fixed.observe(100.0, stream=True)
    assert fixed.seconds(stream=True) == fixed.seconds(stream=False) == seconds


def test_percentiles_have_fractions() -> None:
    measured = patience("p99.5")
    for i in range(400):
        measured.observe(float(i), stream=True)
    assert measured.seconds(stream=True) == 398.0
