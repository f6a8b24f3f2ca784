from random import Random

from hypothesis import given
from hypothesis import strategies as st

from config.schema.route import LONGEST_BACKOFF
from policies.retry import SLOTS, RetryBudget, backoff, rested

ratios = st.sampled_from([0.0, 0.1, 0.2, 0.5, 1.0])
# A step in sixteenths of a second (now and then back, or past the whole window), and what happens then.
events = st.lists(
    st.tuples(st.integers(-8, 48) | st.just(200) | st.just(0), st.sampled_from(["request", "retry"])),
    max_size=120,
)


@given(ratios, st.integers(0, 5), events)
def test_retries_are_granted_exactly_while_they_fit(ratio: float, floor: int, steps: list[tuple[int, str]]) -> None:
    """Against the list of all events; one second steps, so the window is this second and the nine before."""
    budget, now, latest = RetryBudget(ratio, 10.0, floor), 100.0, 0
    requests, retries = list[int](), list[int]()
    for step, event in steps:
        now += step / 16
        latest = max(latest, int(now))
        if event == "request":
            budget.request(now)
            requests.append(latest)
            continue
        in_window = range(latest - SLOTS + 1, latest + 1)
        counted = sum(at in in_window for at in requests)
        fits = sum(at in in_window for at in retries) + 1 <= floor + ratio * counted
        assert budget.allow(now) is fits
        if fits:
            retries.append(latest)


@given(ratios, events)
def test_no_nine_seconds_hold_more_retries_than_the_ten_around_them_pay_for(
    ratio: float, steps: list[tuple[int, str]]
) -> None:
    budget, now = RetryBudget(ratio), 100.0
    requests, retries = list[float](), list[float]()
    for step, event in steps:
        now += max(step, 0) / 16
        if event == "request":
            budget.request(now)
            requests.append(now)
        elif budget.allow(now):
            retries.append(now)
            spent = sum(at > now - 9 for at in retries)
            assert spent <= 3 + ratio * sum(at > now - 10 for at in requests)


@given(st.integers(1, 10), st.floats(0.001, 5), st.integers(0, 2**32))
def test_backoff_is_within_its_doubling_cap(attempt: int, base: float, seed: int) -> None:
    assert 0 <= backoff(attempt, base, Random(seed)) <= min(LONGEST_BACKOFF, base * 2 ** (attempt - 1))


def test_backoff_uses_the_whole_of_its_range() -> None:
    rng = Random(1)
    waits = [backoff(3, 0.1, rng) for _ in range(1000)]
    assert min(waits) < 0.01
    assert max(waits) > 0.39


@given(st.floats(0.0, 100.0), st.integers(0, 2**32))
def test_a_rest_is_never_cut_short_and_a_long_one_is_not_waited_for(seconds: float, seed: int) -> None:
    pause = rested(seconds, Random(seed))
    if seconds > LONGEST_BACKOFF:
        assert pause is None
    else:
        assert pause is not None
        assert seconds <= pause <= 1.5 * seconds
