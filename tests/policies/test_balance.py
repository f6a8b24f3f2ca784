from collections import Counter
from math import gcd
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.balance import LeastRequest, RoundRobin, least_request, picker


class Endpoint:
    def __init__(self, name: str, weight: float = 1.0, in_flight: int = 0) -> None:
        self.name = name
        self.weight = weight
        self.in_flight = in_flight

    def __repr__(self) -> str:
        return self.name


def endpoints(*weights: float) -> list[Endpoint]:
    return [Endpoint(f"e{i}", weight) for i, weight in enumerate(weights)]


seeds = st.integers(0, 2**32)
weight_lists = st.lists(st.integers(1, 9), min_size=1, max_size=6)


@given(st.lists(st.tuples(st.integers(0, 50), st.floats(0.1, 10)), min_size=1, max_size=8), seeds)
def test_least_request_never_picks_the_strictly_most_loaded(loads: list[tuple[int, float]], seed: int) -> None:
    candidates = [Endpoint(str(i), weight, in_flight) for i, (in_flight, weight) in enumerate(loads)]
    picked = candidates[least_request(candidates, Random(seed))]
    load = sorted((c.in_flight + 1) / c.weight for c in candidates)
    if len(load) > 1 and load[-1] > load[-2] * (1 + 1e-9):
        assert (picked.in_flight + 1) / picked.weight < load[-1]


def test_of_two_candidates_the_less_loaded_is_always_picked() -> None:
    busy, idle = Endpoint("busy", in_flight=3), Endpoint("idle")
    rng = Random(1)
    assert {LeastRequest().pick([busy, idle], rng) for _ in range(100)} == {idle}


def test_weight_divides_the_load() -> None:
    big, small = Endpoint("big", 4.0, in_flight=2), Endpoint("small", 1.0)
    rng = Random(1)
    assert {LeastRequest().pick([small, big], rng) for _ in range(100)} == {big}
    big.in_flight = 4
    assert {LeastRequest().pick([small, big], rng) for _ in range(100)} == {small}


def test_ties_are_random_and_every_pair_is_drawn() -> None:
    rng = Random(1)
    counts = Counter(least_request(endpoints(1, 1, 1, 1), rng) for _ in range(8000))
    assert all(abs(count / 8000 - 0.25) < 0.03 for count in counts.values())
    assert len(counts) == 4


def test_two_choices_keep_the_longest_queue_short() -> None:
    """A thousand requests that never end, over a hundred endpoints: one choice would leave about 20."""
    rng = Random(1)
    pool = endpoints(*[1.0] * 100)
    for _ in range(1000):
        LeastRequest().pick(pool, rng).in_flight += 1
    assert max(e.in_flight for e in pool) <= 13


@given(weight_lists, seeds)
def test_round_robin_shares_are_exact_over_every_full_cycle(weights: list[int], seed: int) -> None:
    pool, rng, robin = endpoints(*weights), Random(seed), RoundRobin()
    cycle = sum(weights) // gcd(*weights)
    for _ in range(20):
        counts = Counter(robin.pick(pool, rng) for _ in range(cycle))
        assert [counts[e] for e in pool] == [weight // gcd(*weights) for weight in weights]


def test_round_robin_spreads_the_heavy_one() -> None:
    """nginx's own example, up to where the cycle starts."""
    pool, rng, robin = endpoints(5, 1, 1), Random(1), RoundRobin()
    picks = [repr(robin.pick(pool, rng)) for _ in range(7)]
    assert "".join(p[1] for p in picks) in {"0010200", "0020100"}


def test_workers_do_not_all_begin_with_the_same_endpoint() -> None:
    pool = endpoints(1, 1, 1, 1)
    assert {RoundRobin().pick(pool, Random(seed)) for seed in range(50)} == set(pool)


@given(st.lists(st.sets(st.integers(0, 5), min_size=1), min_size=1, max_size=30), seeds)
def test_round_robin_stays_fair_after_any_comings_and_goings(subsets: list[set[int]], seed: int) -> None:
    pool, rng, robin = endpoints(1, 1, 1, 1, 1, 1), Random(seed), RoundRobin()
    for subset in subsets:
        present = [pool[i] for i in subset]
        assert robin.pick(present, rng) in present
    counts = Counter(robin.pick(pool, rng) for _ in range(600))
    assert all(abs(count - 100) <= 6 for count in counts.values())


@given(seeds)
def test_one_that_joins_does_not_make_the_others_start_over(seed: int) -> None:
    pool, rng, robin = endpoints(1, 1, 1), Random(seed), RoundRobin()
    first = robin.pick(pool[:2], rng)
    assert robin.pick(pool, rng) is not first


def test_credits_do_not_drift_while_endpoints_come_and_go() -> None:
    """Those just picked leave most, which takes debt out of the pool each time; a drift would starve some."""
    rng, robin = Random(1), RoundRobin()
    pool = endpoints(1, 1, 1, 1, 1, 1, 1, 1)
    for _ in range(20_000):
        picked = robin.pick(rng.sample(pool, rng.randint(1, 8)), rng)
        if rng.random() < 0.5:
            pool[pool.index(picked)] = Endpoint("new")
    counts = Counter(robin.pick(pool, rng) for _ in range(80))
    assert all(5 <= counts[e] <= 15 for e in pool)


def test_round_robin_forgets_endpoints_that_left() -> None:
    rng, robin = Random(1), RoundRobin()
    for i in range(500):
        robin.pick(endpoints(1, 1, 1), rng)
        assert len(robin._turns) <= 2 * 3 + 16, i


@pytest.mark.parametrize("by", ["least_request", "round_robin"])
def test_a_picker_returns_the_only_candidate_and_refuses_none(by: str) -> None:
    (only,) = endpoints(1)
    assert picker(by).pick([only], Random(1)) is only
    with pytest.raises(ValueError, match="no candidates"):
        picker(by).pick([], Random(1))


def test_an_unknown_balance_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match="least_request or round_robin, got 'best'"):
        picker("best")
