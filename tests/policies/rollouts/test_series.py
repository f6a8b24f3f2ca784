"""The number of points of a time series grows with the logarithm of the time."""

from hypothesis import given
from hypothesis import strategies as st

from policies.rollouts.report import LEAST_SECONDS, PointTimes


@given(st.floats(1, 50), st.integers(1, 40))
def test_points_of_a_long_rollout_are_bounded(step: float, months: int) -> None:
    times, now, end = PointTimes(0.0, 0.0, 0.1), 0.0, months * 2_592_000.0
    points = 0
    while now < end:
        now = max(now + step, times.last + max(LEAST_SECONDS, now * 0.002))
        if times.is_due(now, 0.1):
            points += 1
            times = PointTimes(0.0, now, 0.1)
    assert points < 10_000


@given(st.floats(0, 1e6), st.floats(0, 1), st.floats(0, 1))
def test_a_change_of_the_weight_is_a_point(last: float, before: float, after: float) -> None:
    times = PointTimes(0.0, last, before)
    assert times.is_due(last + 1.5, after) == (before != after)
