"""Lines begin only in the capacity that live requests leave, and soon in all of it."""

from hypothesis import given
from hypothesis import strategies as st

from policies.batches.admission import CALM, Admission, PoolLoad
from policies.batches.lines import MOST_FAILURES, retry_of
from policies.batches.states import window_of


@given(
    st.lists(st.tuples(st.sampled_from(["ok", "crowded", "wait"]), st.floats(0, 1)), max_size=50),
    st.integers(0, 100),
    st.integers(0, 120),
    st.integers(0, 100),
    st.integers(1, 64),
    st.floats(0, 0.9),
)
def test_no_line_takes_a_place_of_a_live_request(
    events: list[tuple[str, float]], capacity: int, live: int, own: int, most: int, reserve: float
) -> None:
    admission, now = Admission(), 0.0
    for event, seconds in events:
        now += seconds
        if event == "ok":
            admission.succeeded(most)
        elif event == "crowded":
            admission.crowded(now)
        else:
            assert admission.room(PoolLoad(capacity, live, 1), own, most, reserve, now) == 0
        assert 1.0 <= admission.limit <= max(most, 4)
    room = admission.room(PoolLoad(capacity, live + own, 0), own, most, reserve, now)
    assert 0 <= room <= most
    if room:
        assert own + room <= most
        assert live + own + room <= max(capacity * (1 - reserve), 0 if live else 1) + 1e-9


def test_the_limit_reaches_the_whole_capacity_and_falls_within_a_second() -> None:
    admission, load = Admission(), PoolLoad(64, 0, 0)
    for _ in range(100):
        admission.succeeded(64)
    assert admission.room(load, 0, 64, 0.0, 0.0) == 64
    now = 0.0
    while now < 1.0:
        assert admission.room(PoolLoad(64, 64, 3), 40, 64, 0.0, now) == 0
        now += CALM / 5
    assert admission.limit <= 8
    for _ in range(200):
        admission.succeeded(64)
    assert 8 < admission.limit < 64  # then by one for each round


def test_capacity_never_fails_a_line_and_other_failures_do_in_the_end() -> None:
    assert all(retry_of("capacity", wait, failures, 10.0) for wait in (None, 0.1, 1e6) for failures in range(100))
    assert retry_of("capacity", float("inf"), 0, 10.0) is None
    assert [retry_of("backend", None, i, 100.0) is not None for i in range(MOST_FAILURES)] == [True] * 3 + [False]
    assert retry_of("caller", None, 0, 100.0) is None
    assert retry_of("credential", None, 0, 100.0) is None


def test_windows() -> None:
    assert [window_of(text, 86400.0) for text in ("24h", "30m", "10s", "1d")] == [86400.0, 1800.0, 10.0, 86400.0]
    assert window_of("24h", 3600.0) == 3600.0
    assert [window_of(text, 3600.0) for text in ("2h", "", "0h", "-1h", "1h ", 24, None)] == [None] * 7
