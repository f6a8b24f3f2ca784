from collections import Counter
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.balancing.balance import LeastRequest
from policies.balancing.pickers import LOADING, LoadTwoChoices
from policies.balancing.signals import CROWDED, Signal
from tests.support.candidates import ANYONE, Candidate, PickRequest, candidates

counts = st.floats(0, 1000)
shares = st.floats(0, 1)
times = st.floats(0, 1e6)


def report(
    signal: Signal, *, running: float = 0, waiting: float = 0, cache: float = 0, own: int = 0, now: float = 0
) -> None:
    signal.report(running=running, waiting=waiting, cache=cache, own=own, half_life=3.0, now=now)


def pick(pool: list[Candidate], now: float = 0.0, seed: int = 1) -> Candidate:
    return LoadTwoChoices().pick(pool, ANYONE, ANYONE, now, Random(seed))


@given(counts, counts, shares, st.integers(0, 100), times, times)
def test_a_report_counts_for_less_and_less(
    running: float, waiting: float, cache: float, own: int, first: float, second: float
) -> None:
    signal = Signal()
    assert signal.trust(first) == 0.0
    report(signal, running=running, waiting=waiting, cache=cache, own=own)
    first, second = sorted((first, second))
    assert 1.0 >= signal.trust(first) >= signal.trust(second) >= 0.0
    assert signal.load(own, signal.trust(first)) >= signal.load(own, signal.trust(second)) >= own
    assert signal.load(own, 0.0) == own


def test_trust_halves_with_each_half_life_and_a_clock_that_jumps_back_gives_none() -> None:
    signal = Signal()
    report(signal, running=10, now=100.0)
    assert [signal.trust(100.0 + seconds) for seconds in (0, 3, 6)] == [1.0, 0.5, 0.25]
    assert signal.trust(-1e9) == 1.0


@given(st.lists(st.tuples(st.integers(0, 50), counts, counts, shares), min_size=2, max_size=6), st.integers(0, 2**32))
def test_long_after_the_last_report_it_is_least_request(
    states: list[tuple[int, float, float, float]], seed: int
) -> None:
    pool = candidates(*[1.0] * len(states))
    for candidate, (in_flight, running, waiting, cache) in zip(pool, states, strict=True):
        candidate.in_flight = in_flight
        report(candidate.signal, running=running, waiting=waiting, cache=cache)
    assert pick(pool, 1e9, seed) is LeastRequest().pick(pool, ANYONE, ANYONE, 1e9, Random(seed))


def test_foreign_requests_count_and_our_own_count_once() -> None:
    signal = Signal()
    report(signal, running=10, own=4)
    assert signal.load(4, 1.0) == 10
    assert signal.load(9, 1.0) == 15  # five more of ours since
    assert signal.load(0, 1.0) == 6
    report(signal, running=1, own=4)  # read before all of ours had arrived
    assert signal.load(4, 1.0) == 4


def test_a_queue_weighs_more_than_a_batch_and_a_full_cache_more_than_either() -> None:
    batch, queue, crowded = Signal(), Signal(), Signal()
    report(batch, running=12)
    report(queue, running=8, waiting=4)
    report(crowded, running=12, cache=1.0)
    assert batch.load(1, 1.0) < queue.load(1, 1.0) < crowded.load(1, 1.0)
    assert crowded.load(1, 1.0) == (1 + CROWDED) * batch.load(1, 1.0)


@pytest.mark.parametrize("cache", [0.0, 0.4, 0.8])
def test_a_cache_with_room_does_not_count(cache: float) -> None:
    signal = Signal()
    report(signal, running=5, cache=cache)
    assert signal.load(0, 1.0) == 5


def test_the_server_that_others_keep_busy_is_passed_over() -> None:
    busy, idle = candidates(1, 1)
    idle.in_flight = 3
    report(busy.signal, running=8)
    report(idle.signal, running=3, own=3)
    assert {pick([busy, idle], 0.5, seed) for seed in range(20)} == {idle}


def test_an_endpoint_with_unreadable_metrics_does_not_look_idle() -> None:
    """Both have as many of our requests; the silent endpoint may serve as many of others as the reporting one."""
    silent, reporting_one = candidates(1, 1)
    silent.in_flight = reporting_one.in_flight = 2
    report(reporting_one.signal, running=20, own=2)
    picked = Counter(pick([silent, reporting_one], 0.0, seed) for seed in range(400))
    assert abs(picked[silent] - 200) < 60


def test_the_one_that_was_idle_a_moment_ago_gets_no_herd() -> None:
    """Twenty gateways with the same old report send two hundred requests each: no endpoint gets more than its share."""
    names = range(20)
    loads: Counter[str] = Counter()
    for gateway in range(20):
        pool = [Candidate(f"e{i}") for i in names]
        for i, candidate in enumerate(pool):
            report(candidate.signal, running=0 if i == 0 else 10)
        rng = Random(gateway)
        for _ in range(200):
            chosen = LoadTwoChoices().pick(pool, ANYONE, ANYONE, 0.5, rng)
            chosen.in_flight += 1
            loads[chosen.place] += 1
    assert loads["e0"] < 0.12 * 4000


def test_weight_divides_reported_load_too() -> None:
    big, small = Candidate("big", 4.0), Candidate("small", 1.0)
    report(big.signal, running=11)
    report(small.signal, running=3)
    assert {pick([big, small], 0.0, seed) for seed in range(20)} == {big}


def held(address: str, *adapters: str, running: float = 0) -> Candidate:
    candidate = Candidate(address)
    candidate.signal.report(
        running=running, waiting=0, cache=0, own=0, half_life=3.0, now=0, adapters=frozenset(adapters)
    )
    return candidate


@pytest.mark.parametrize(("busier_by", "chosen"), [(0, "near"), (LOADING, "near"), (LOADING + 1, "far")])
def test_a_request_prefers_its_loaded_adapter_until_loading_elsewhere_is_cheaper(busier_by: float, chosen: str) -> None:
    pool = [held("near", "sql", running=busier_by), held("far", "other")]
    request = PickRequest(model="sql")
    assert {str(LoadTwoChoices().pick(pool, request, request, 0.0, Random(seed))) for seed in range(20)} == {chosen}


def test_with_an_adapter_on_all_or_none_only_load_counts() -> None:
    for adapters in ((), ("sql",)):
        pool = [held("busy", *adapters, running=3), held("idle", *adapters)]
        assert (
            str(LoadTwoChoices().pick(pool, PickRequest(model="sql"), PickRequest(model="sql"), 0.0, Random(1)))
            == "idle"
        )
