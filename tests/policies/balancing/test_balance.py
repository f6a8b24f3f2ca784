from collections import Counter
from math import gcd
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from config.schema.config import BalanceConfig
from policies.balancing.balance import (
    UNMEASURED,
    Drawn,
    LeastRequest,
    PeakEwmaTwoChoices,
    Picker,
    RoundRobin,
    expected_wait,
    least_request,
)
from policies.balancing.pickers import picker
from tests.support.candidates import ANYONE, Candidate, candidates

seeds = st.integers(0, 2**32)
weight_lists = st.lists(st.integers(1, 9), min_size=1, max_size=6)


@given(st.lists(st.tuples(st.integers(0, 50), st.floats(0.1, 10)), min_size=1, max_size=8), seeds)
def test_least_request_never_picks_the_strictly_most_loaded(loads: list[tuple[int, float]], seed: int) -> None:
    pool = [Candidate(str(i), weight, in_flight) for i, (in_flight, weight) in enumerate(loads)]
    picked = LeastRequest().pick(pool, ANYONE, ANYONE, 0.0, Random(seed))
    load = sorted((c.in_flight + 1) / c.weight for c in pool)
    if len(load) > 1 and load[-1] > load[-2] * (1 + 1e-9):
        assert (picked.in_flight + 1) / picked.weight < load[-1]


def test_ties_are_random_and_every_pair_is_drawn() -> None:
    rng, pool = Random(1), candidates(1, 1, 1, 1)
    counts = Counter(repr(least_request(pool, rng)) for _ in range(8000))
    assert all(abs(count / 8000 - 0.25) < 0.03 for count in counts.values())
    assert len(counts) == 4


def test_two_choices_keep_the_longest_queue_short() -> None:
    """A thousand requests that never end, over a hundred endpoints: one choice would leave about 20."""
    rng = Random(1)
    pool = candidates(*[1.0] * 100)
    for _ in range(1000):
        LeastRequest().pick(pool, ANYONE, ANYONE, 0.0, rng).in_flight += 1
    assert max(e.in_flight for e in pool) <= 13


@given(weight_lists, seeds)
def test_round_robin_shares_are_exact_over_every_full_cycle(weights: list[int], seed: int) -> None:
    pool, rng, robin = candidates(*weights), Random(seed), RoundRobin()
    cycle = sum(weights) // gcd(*weights)
    for _ in range(20):
        counts = Counter(robin.pick(pool, ANYONE, ANYONE, 0.0, rng) for _ in range(cycle))
        assert [counts[e] for e in pool] == [weight // gcd(*weights) for weight in weights]


def test_round_robin_spreads_the_heavy_one() -> None:
    """nginx's own example, up to where the cycle starts."""
    pool, rng, robin = candidates(5, 1, 1), Random(1), RoundRobin()
    picks = [repr(robin.pick(pool, ANYONE, ANYONE, 0.0, rng)) for _ in range(7)]
    assert "".join(p[1] for p in picks) in {"0010200", "0020100"}


def test_workers_do_not_all_begin_with_the_same_endpoint() -> None:
    pool = candidates(1, 1, 1, 1)
    assert {RoundRobin().pick(pool, ANYONE, ANYONE, 0.0, Random(seed)) for seed in range(50)} == set(pool)


@given(st.lists(st.sets(st.integers(0, 5), min_size=1), min_size=1, max_size=30), seeds)
def test_round_robin_stays_fair_after_any_comings_and_goings(subsets: list[set[int]], seed: int) -> None:
    pool, rng, robin = candidates(1, 1, 1, 1, 1, 1), Random(seed), RoundRobin()
    for subset in subsets:
        present = [pool[i] for i in subset]
        assert robin.pick(present, ANYONE, ANYONE, 0.0, rng) in present
    counts = Counter(robin.pick(pool, ANYONE, ANYONE, 0.0, rng) for _ in range(600))
    assert all(abs(count - 100) <= 6 for count in counts.values())


@given(seeds)
def test_one_that_joins_does_not_make_the_others_start_over(seed: int) -> None:
    pool, rng, robin = candidates(1, 1, 1), Random(seed), RoundRobin()
    first = robin.pick(pool[:2], ANYONE, ANYONE, 0.0, rng)
    assert robin.pick(pool, ANYONE, ANYONE, 0.0, rng) is not first


def test_credits_do_not_drift_while_endpoints_come_and_go() -> None:
    """Endpoints that were just picked leave most often, which removes debt from the pool; a drift would starve some."""
    rng, robin = Random(1), RoundRobin()
    pool = candidates(1, 1, 1, 1, 1, 1, 1, 1)
    for _ in range(20_000):
        picked = robin.pick(rng.sample(pool, rng.randint(1, 8)), ANYONE, ANYONE, 0.0, rng)
        if rng.random() < 0.5:
            pool[pool.index(picked)] = Candidate("new")
    counts = Counter(robin.pick(pool, ANYONE, ANYONE, 0.0, rng) for _ in range(80))
    assert all(5 <= counts[e] <= 15 for e in pool)


def test_round_robin_forgets_endpoints_that_left() -> None:
    rng, robin = Random(1), RoundRobin()
    for i in range(500):
        robin.pick(candidates(1, 1, 1), ANYONE, ANYONE, 0.0, rng)
        assert len(robin._turns) <= 2 * 3 + 16, i


def test_the_quicker_of_two_is_picked_until_its_queue_is_as_long() -> None:
    slow, quick = candidates(1, 1)
    slow.latency.sent(0.0)
    slow.latency.answered(1.0, 0.0)
    quick.latency.sent(0.0)
    quick.latency.answered(0.25, 0.0)
    picked: Counter[Candidate] = Counter()
    for _ in range(50):
        one = PeakEwmaTwoChoices().pick([slow, quick], ANYONE, ANYONE, 0.0, Random(1))
        one.in_flight += 1
        picked[one] += 1
    assert abs(picked[quick] - 40) <= 1


def test_one_that_never_answered_is_tried_with_one_request_at_a_time() -> None:
    answered, new = candidates(1, 1)
    answered.latency.sent(0.0)
    answered.latency.answered(1.0, 0.0)
    answered.in_flight = 5
    assert PeakEwmaTwoChoices().pick([answered, new], ANYONE, ANYONE, 0.0, Random(1)) is new
    new.in_flight = 1
    assert expected_wait(new, 0.0) == UNMEASURED
    assert PeakEwmaTwoChoices().pick([answered, new], ANYONE, ANYONE, 0.0, Random(1)) is answered


@given(st.lists(st.tuples(st.floats(0.001, 10), st.integers(0, 50)), min_size=2, max_size=6), seeds)
def test_peak_ewma_never_picks_the_strictly_longest_wait(states: list[tuple[float, int]], seed: int) -> None:
    pool = candidates(*[1.0] * len(states))
    for candidate, (seconds, in_flight) in zip(pool, states, strict=True):
        candidate.latency.sent(0.0)
        candidate.latency.answered(seconds, 0.0)
        candidate.in_flight = in_flight
    waits = sorted(expected_wait(c, 1.0) for c in pool)
    picked = PeakEwmaTwoChoices().pick(pool, ANYONE, ANYONE, 1.0, Random(seed))
    assert expected_wait(picked, 1.0) < waits[-1] or waits[-1] == waits[-2]


def test_random_draws_by_weight_and_looks_at_no_load() -> None:
    pool, rng = candidates(3, 1), Random(1)
    pool[0].in_flight = 1000
    counts = Counter(Drawn().pick(pool, ANYONE, ANYONE, 0.0, rng) for _ in range(4000))
    assert abs(counts[pool[0]] / 4000 - 0.75) < 0.03


CONFIGS = [
    BalanceConfig(by="least_request"),
    BalanceConfig(by="round_robin"),
    BalanceConfig(by="random"),
    BalanceConfig(by="peak_ewma"),
    BalanceConfig(by="load"),
    BalanceConfig(by="hash", key="key"),
    BalanceConfig(by="hash", key="user"),
    BalanceConfig(by="prefix_affinity"),
]


@pytest.mark.parametrize("config", CONFIGS, ids=lambda config: f"{config.by} {config.key or ''}")
def test_a_picker_returns_the_only_candidate_and_refuses_none(config: BalanceConfig) -> None:
    (only,) = candidates(1)
    assert picker(config).pick([only], ANYONE, ANYONE, 0.0, Random(1)) is only
    with pytest.raises(ValueError, match="no candidates"):
        picker(config).pick([], ANYONE, ANYONE, 0.0, Random(1))


def test_each_pool_has_a_picker_of_its_own() -> None:
    kinds: set[type[Picker]] = {type(picker(config)) for config in CONFIGS}
    assert len(kinds) == 7
    assert picker(CONFIGS[1]) is not picker(CONFIGS[1])
