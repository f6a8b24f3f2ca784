from hypothesis import given
from hypothesis import strategies as st

from policies.health import panics, ramp


@given(st.floats(0, 1e6), st.floats(0, 1e6), st.floats(0, 1e6))
def test_a_ramp_rises_from_a_tenth_and_ends_at_the_whole(age: float, later: float, window: float) -> None:
    assert 0.1 <= ramp(age, window) <= ramp(age + later, window) <= 1.0
    assert ramp(window, window) == 1.0


def test_a_ramp_is_straight() -> None:
    assert [ramp(age, 10.0) for age in (0.0, 0.5, 5.0, 9.0, 10.0)] == [0.1, 0.1, 0.5, 0.9, 1.0]


@given(st.integers(0, 100), st.integers(1, 100))
def test_a_threshold_of_nothing_never_panics_and_a_whole_pool_never_does(healthy: int, more: int) -> None:
    assert not panics(healthy, healthy + more, 0.0)
    assert not panics(more, more, 1.0)
    assert panics(healthy, healthy + more, 1.0)


def test_a_pool_panics_below_the_threshold_and_not_at_it() -> None:
    assert panics(4, 10, 0.5)
    assert not panics(5, 10, 0.5)
