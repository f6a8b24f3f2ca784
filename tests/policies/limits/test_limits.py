from fractions import Fraction
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.limits.limits import Concurrency, TokenBucket

amounts = st.integers(1, 1000)
periods = st.sampled_from([0.5, 1.0, 60.0, 3600.0])
gaps = st.integers(0, 4000).map(lambda n: n / 64)
steps = st.integers(-400, 4000).map(lambda n: n / 64)
"""Of a clock that is set back at times."""
costs = st.integers(0, 1200)


class Reference:
    """The same bucket in exact arithmetic."""

    def __init__(self, amount: int, period: float, now: float) -> None:
        self.capacity, self.rate = Fraction(amount), Fraction(amount) / Fraction(period)
        self.level, self.now = self.capacity, Fraction(now)

    def refill(self, now: float) -> Fraction:
        later = max(self.now, Fraction(now))
        self.level = min(self.capacity, self.level + (later - self.now) * self.rate)
        self.now = later
        return self.level


@given(
    amounts,
    periods,
    st.lists(st.tuples(steps, st.booleans(), costs, st.none() | st.tuples(steps, costs)), min_size=10, max_size=40),
)
def test_agrees_with_exact_arithmetic(
    amount: int, period: float, calls: list[tuple[float, bool, int, tuple[float, int] | None]]
) -> None:
    """Each call takes, and then settles for another cost or not. An earlier time counts as the latest."""
    now = 5000.0
    bucket, exact = TokenBucket(amount, period, now), Reference(amount, period, now)
    for step, looks, cost, settled in calls:
        now += step
        level = exact.refill(now)
        if looks:
            assert bucket.remaining(now) == pytest.approx(max(float(level), 0.0), abs=1e-6)
            assert bucket.seconds_to_full == pytest.approx(float((exact.capacity - level) / exact.rate), abs=1e-4)
        reserved = bucket.clamp(cost)
        assert reserved == min(cost, amount)
        wait = bucket.take(reserved, now)
        if wait == 0:
            assert Fraction(reserved) <= level + Fraction(1e-6)
            exact.level -= Fraction(reserved)
            if settled is not None:
                later, actual = settled
                now += later
                exact.refill(now)
                bucket.settle(reserved, actual, now)
                exact.level = min(exact.capacity, exact.level + Fraction(reserved) - actual)
        else:
            assert wait == pytest.approx(float((Fraction(reserved) - level) / exact.rate), abs=1e-4)


@given(amounts, periods, st.lists(st.tuples(gaps, st.integers(1, 300)), min_size=1, max_size=40))
def test_no_stretch_of_time_grants_more_than_the_burst_and_the_rate(
    amount: int, period: float, calls: list[tuple[float, int]]
) -> None:
    now, granted = 0.0, list[tuple[float, int]]()
    bucket = TokenBucket(amount, period, now)
    for gap, cost in calls:
        now += gap
        if bucket.take(cost, now) == 0:
            granted.append((now, cost))
    for i, (start, _) in enumerate(granted):
        total = 0
        for end, cost in granted[i:]:
            total += cost
            assert total <= amount * (1 + (end - start) / period) + 1e-6


@given(amounts, periods, st.lists(costs, max_size=10), costs, st.floats(0, 1e7))
def test_after_the_wait_it_returned_a_take_is_granted(
    amount: int, period: float, spent: list[int], cost: int, now: float
) -> None:
    bucket = TokenBucket(amount, period, now)
    for n in spent:
        bucket.take(n, now)
    reserved = bucket.clamp(cost)
    wait = bucket.take(reserved, now)
    assert wait == 0 or bucket.take(reserved, now + wait) == 0


def test_a_full_burst_is_granted_to_the_last_unit() -> None:
    bucket = TokenBucket(600, 60.0, now=0.1)
    assert [bucket.take(1, 0.1) for _ in range(600)] == [0.0] * 600
    assert bucket.take(1, 0.1) == pytest.approx(0.1, abs=1e-5)


def test_more_than_the_capacity_is_never_granted_but_its_clamp_is() -> None:
    bucket = TokenBucket(10, 10.0, now=0)
    assert bucket.take(11, 0) == inf
    assert bucket.clamp(11) == 10
    assert bucket.clamp(4) == 4
    assert bucket.take(bucket.clamp(11), 0) == 0


@given(amounts, amounts, periods, costs, costs)
def test_a_resize_preserves_the_used_share(old: int, new: int, period: float, taken: int, actual: int) -> None:
    bucket = TokenBucket(old, 60.0, now=0)
    reserved = bucket.clamp(taken)
    bucket.take(reserved, 0)
    bucket.settle(reserved, actual, 0)
    free = 1 - actual / old
    bucket.resize(new, period, 0)
    assert bucket.capacity == new
    assert bucket.remaining(0) == pytest.approx(max(0.0, free * new), abs=1e-6)
    assert bucket.seconds_to_full == pytest.approx((1 - free) * period, rel=1e-6, abs=1e-6)


@pytest.mark.parametrize(("amount", "period"), [(0, 60), (-1, 60), (10, 0)])
def test_a_limit_of_nothing_is_refused(amount: float, period: float) -> None:
    with pytest.raises(ValueError, match="above 0"):
        TokenBucket(amount, period, now=0)


@given(st.integers(1, 5), st.lists(st.booleans(), max_size=40))
def test_concurrency_is_never_above_its_limit(limit: int, calls: list[bool]) -> None:
    slots, held = Concurrency(limit), 0
    for take in calls:
        if take:
            granted = slots.take()
            assert granted is (held < limit)
            held += granted
        elif held:
            slots.release()
            held -= 1
        assert slots.in_flight == held <= limit


def test_one_release_too_many_is_a_bug_and_changes_nothing() -> None:
    slots = Concurrency(1)
    with pytest.raises(AssertionError, match="without a take"):
        slots.release()
    assert slots.take()
    assert not slots.take()


def test_a_lower_limit_lets_those_over_it_finish() -> None:
    slots = Concurrency(2)
    assert slots.take()
    assert slots.take()
    slots.limit = 1
    slots.release()
    assert not slots.take()
    slots.release()
    assert slots.take()
