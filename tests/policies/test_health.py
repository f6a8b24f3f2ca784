from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.breaker import Breaker
from policies.health import Outliers, Tally, panics, ramp


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


class Peer:
    def __init__(self) -> None:
        self.tally = Tally()
        self.breaker = Breaker(1000, 10.0)


def outliers(count: int, at_most: float = 0.3, leave_for: float = 30.0) -> tuple[Outliers, list[Peer]]:
    peers = [Peer() for _ in range(count)]
    made = Outliers(failures=0.2, window=30.0, requests=20, leave_for=leave_for, at_most=at_most)
    made.peers = peers
    return made, peers


def play(judge: Outliers, peers: list[Peer], rates: list[float], seconds: float, start: float = 0.0) -> float:
    """Ten requests a second at each that is not left alone; the time afterwards."""
    rng, now = Random(1), start
    while now < start + seconds:
        now += 0.1
        for peer, rate in zip(peers, rates, strict=True):
            if peer.breaker.allows(now):
                peer.breaker.begin(now)
                failed = rng.random() < rate
                (peer.breaker.failure if failed else peer.breaker.success)(now)
                judge.ended(peer, now, failed=failed)
    return now


def out(peers: list[Peer]) -> list[bool]:
    return [peer.breaker.is_open for peer in peers]


def test_one_that_fails_a_third_is_left_alone_though_it_never_fails_often_in_a_row() -> None:
    judge, peers = outliers(5)
    play(judge, peers, [0.33, 0.01, 0.01, 0.01, 0.01], 20)
    assert out(peers) == [True, False, False, False, False]


def test_no_endpoint_is_an_outlier_when_all_fail_alike() -> None:
    judge, peers = outliers(5)
    play(judge, peers, [0.5] * 5, 60)
    assert not any(out(peers))


def test_a_few_failures_among_few_requests_do_not_count() -> None:
    judge, peers = outliers(3)
    for i in range(19):
        judge.ended(peers[0], i / 100, failed=True)
        judge.ended(peers[1], i / 100, failed=False)
    assert not any(out(peers))
    judge.ended(peers[0], 0.2, failed=True)
    assert judge.ended(peers[0], 0.2, failed=True)


@given(
    st.integers(1, 12),
    st.floats(0.05, 1.0),
    st.lists(st.tuples(st.integers(0, 11), st.booleans(), st.floats(0, 5)), max_size=400),
)
def test_never_more_than_the_share_and_never_the_last(
    count: int, at_most: float, ends: list[tuple[int, bool, float]]
) -> None:
    judge, peers = outliers(count, at_most)
    now = 0.0
    for index, failed, gap in ends:
        now += gap / 10
        judge.ended(peers[index % count], now, failed=failed)
        ejected = sum(out(peers))
        assert ejected <= max(1, int(at_most * count))
        assert ejected < count or ejected == 0


def test_it_is_left_alone_for_longer_each_time_and_forgiven_after_a_while() -> None:
    tally = Tally()
    assert [tally.leave(30.0, at) for at in (0.0, 40.0, 110.0)] == [30.0, 60.0, 120.0]
    assert [tally.leave(30.0, 300.0 + 200 * i) for i in range(3)] == [240.0, 240.0, 240.0]
    assert tally.leave(30.0, 100_000.0) == 30.0


def test_failures_before_an_ejection_do_not_count_after_it() -> None:
    judge, peers = outliers(4)
    now = play(judge, peers, [0.4, 0.0, 0.0, 0.0], 10)
    assert out(peers)[0]
    play(judge, peers, [0.0] * 4, 60, now)
    assert not any(out(peers))


def test_old_requests_fade() -> None:
    tally = Tally()
    for i in range(100):
        tally.count(30.0, i / 100, failed=True)
    assert tally.share == pytest.approx(1.0)
    for i in range(100):
        tally.count(30.0, 90.0 + i / 100, failed=False)
    assert tally.share < 0.06
