from hypothesis import given
from hypothesis import strategies as st

from policies.scaling.starts import RECENT, UNKNOWN, StartTimes, remaining

seconds = st.just(0.0) | st.floats(0.001, 1e5)


@given(st.lists(seconds, min_size=1, max_size=20))
def test_the_longest_of_the_last_starts_counts(measured: list[float]) -> None:
    starts = StartTimes()
    assert starts.seconds is None
    for each in measured:
        starts.measure(each)
    assert starts.seconds == max(measured[-RECENT:])


@given(st.none() | seconds, seconds)
def test_the_rest_of_a_start_is_never_negative_and_never_nothing_while_it_is_overdue(
    measured: float | None, elapsed: float
) -> None:
    rest = remaining(measured, elapsed)
    assert rest >= 0
    assert rest + elapsed >= (UNKNOWN if measured is None else measured) * (1 - 1e-9)
    assert rest > 0 or elapsed == 0
