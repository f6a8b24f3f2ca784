from hypothesis import given
from hypothesis import strategies as st

from policies.scaling.starts import DAY, HOUR, RECENT, UNKNOWN, WEEK, StartTimes, expects, remaining

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


@given(st.integers(500_000, 600_000), st.floats(0, HOUR - 1), st.floats(0, 1800), st.sampled_from([DAY, WEEK]))
def test_an_hour_is_expected_from_its_lead_to_its_end(hour: int, into: float, lead: float, before: int) -> None:
    used = {hour - before}
    assert expects(used, hour * HOUR + into, lead)
    assert expects(used, hour * HOUR - lead, lead)
    assert not expects(used, hour * HOUR - lead - 1, lead)
    assert not expects(used, (hour + 1) * HOUR, lead)
    assert not expects({hour - before - 1, hour - before + 2}, hour * HOUR + into, min(lead, HOUR - 1 - into))
