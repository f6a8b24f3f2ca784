"""Confidence sequences of rates and quantiles, and their users."""

from bisect import bisect_left, bisect_right
from itertools import product
from math import exp, inf, isclose, lgamma, log
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import brentq
from scipy.special import betaln

from policies.sequential.proportions import (
    MISMATCH_ALPHA,
    Assigned,
    Proportion,
    difference_interval,
    log_mismatch,
    rate_interval,
)
from policies.sequential.quantiles import GROWTH, bin_of, merged, quantile, quantile_interval
from policies.sequential.thompson import Rewards, thompson_shares

proportions = st.integers(0, 5000).flatmap(lambda n: st.builds(Proportion, st.integers(0, n), st.just(n)))


@pytest.mark.parametrize(("events", "trials"), [(0, 50), (3, 50), (50, 50), (7, 12_000), (6000, 12_000)])
@pytest.mark.parametrize("alpha", [0.05, 0.001])
def test_the_interval_of_a_rate_is_scipys(events: int, trials: int, alpha: float) -> None:
    def log_e(p: float) -> float:
        return float(
            betaln(0.5 + events, 0.5 + trials - events)
            - betaln(0.5, 0.5)
            - events * log(p)
            - (trials - events) * log(1 - p)
            + log(alpha)
        )

    low, high = rate_interval(Proportion(events, trials), alpha)
    estimate = min(max(events / trials, 1e-12), 1 - 1e-12)
    assert low == pytest.approx(brentq(log_e, 1e-300, estimate, xtol=1e-16) if events else 0, abs=1e-9)
    assert high == pytest.approx(brentq(log_e, estimate, 1 - 1e-16, xtol=1e-16) if events < trials else 1, abs=1e-9)


def test_the_interval_of_a_rate_holds_at_all_of_600_looks() -> None:
    """Exactly, by dynamic programming over the number of events: the interval misses in at most 5 % of the runs."""
    for rate in (0.01, 0.1, 0.5):
        alive, missed = {0: 1.0}, 0.0
        for n in range(1, 601):
            after: dict[int, float] = {}
            for s, p in alive.items():
                after[s] = after.get(s, 0.0) + p * (1 - rate)
                after[s + 1] = after.get(s + 1, 0.0) + p * rate
            alive = {}
            for s, p in after.items():
                mixture = lgamma(0.5 + s) + lgamma(0.5 + n - s) - lgamma(1 + n) - 2 * lgamma(0.5)
                if mixture - s * log(rate) - (n - s) * log(1 - rate) >= -log(0.05):
                    low, high = rate_interval(Proportion(s, n), 0.05)
                    assert not low < rate * (1 - 1e-9) < rate * (1 + 1e-9) < high
                    missed += p
                elif p > 1e-12:
                    alive[s] = p
        assert missed <= 0.05


@given(proportions, proportions)
def test_the_difference_contains_the_estimate_and_changes_its_sign_with_the_arms(
    first: Proportion, second: Proportion
) -> None:
    low, high = difference_interval(first, second, 0.05)
    other = difference_interval(second, first, 0.05)
    assert (low, high) == pytest.approx((-other[1], -other[0]))
    if first.trials and second.trials:
        assert low <= second.events / second.trials - first.events / first.trials <= high
    assert -1 <= low <= high <= 1


# ── quantiles ─────────────────────────────────────────────────────────────────────────────────────────


@given(st.floats(1e-6, 1e5))
def test_a_value_is_within_its_bin(value: float) -> None:
    number = bin_of(value)
    assert GROWTH ** (number - 1) <= value * (1 + 1e-9)
    assert value <= GROWTH**number * (1 + 1e-9)


@given(st.lists(st.floats(1e-4, 1e3), max_size=300), st.sampled_from((0.5, 0.9, 0.95)), st.integers(1, 5))
def test_the_interval_of_a_quantile_is_the_order_statistics_rounded_outward(
    values: list[float], p: float, processes: int
) -> None:
    """Against the definition over the values themselves: no value that the test accepts is outside."""
    bins = merged({bin_of(v): 1} for v in values)
    parts = [merged({bin_of(v): 1} for v in values[i::processes]) for i in range(processes)]
    assert merged(parts) == bins
    low, high = quantile_interval(bins, p, 0.05)
    ordered, t = sorted(values), len(values)
    a, b = 20 * p, 20 * (1 - p)

    def accepted(s: int) -> bool:
        mixture = betaln(a + s, b + t - s) - betaln(a, b) - s * log(p) - (t - s) * log(1 - p)
        return bool(mixture < log(20))

    for x in (*values, *(v * 1.2 for v in values), *(v / 1.2 for v in values)):
        below, up_to = bisect_left(ordered, x), bisect_right(ordered, x)
        if any(accepted(s) for s in range(below, up_to + 1)):
            assert low <= x * (1 + 1e-9)
            assert x <= high * (1 + 1e-9)
    if values:
        assert low <= quantile(bins, p) <= high or high == inf


def test_the_interval_of_a_95th_percentile_is_as_narrow_as_computed() -> None:
    """The accepted ranks for 2,000 values and an alpha of 5 % are -1.8 and +1.6 points around 95 %."""
    bins = {bin_of(GROWTH**i): 1 for i in range(1, 2001)}
    low, high = quantile_interval(bins, 0.95, 0.05)
    assert log(low) / log(GROWTH) / 2000 == pytest.approx(0.95 - 0.018, abs=0.0015)
    assert log(high) / log(GROWTH) / 2000 == pytest.approx(0.95 + 0.016, abs=0.0015)


def test_a_quantile_without_values_is_unknown() -> None:
    assert quantile({}, 0.5) == inf
    assert quantile_interval({}, 0.5, 0.05) == (0.0, inf)


# ── shares ────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("shares", [(0.99, 0.01), (0.95, 0.05), (0.5, 0.5), (0.2, 0.3, 0.5)])
def test_the_mean_of_the_sample_ratio_test_is_one(shares: tuple[float, ...]) -> None:
    for subjects in range(1, 7):
        mean = 0.0
        for sequence in product(range(len(shares)), repeat=subjects):
            n = tuple(sequence.count(k) for k in range(len(shares)))
            weight = np.prod([shares[k] for k in sequence])
            mean += float(weight) * exp(log_mismatch([Assigned(shares, n)]))
        assert isclose(mean, 1, rel_tol=1e-9)


def first_mismatch(assigned: float, share: float) -> int:
    """Subjects until the test on the mean path alarms."""
    n = 100
    while log_mismatch([Assigned((1 - share, share), (n - round(n * assigned), round(n * assigned)))]) < log(1000):
        n += 25
    return n


def test_four_percent_for_five_shows_after_8200_subjects() -> None:
    assert MISMATCH_ALPHA == 0.001
    assert first_mismatch(0.04, 0.05) == pytest.approx(8200, rel=0.03)
    assert first_mismatch(0.045, 0.05) == pytest.approx(36_300, rel=0.03)


def test_a_right_sample_ratio_is_no_evidence_and_a_subject_of_no_share_is_all() -> None:
    assert log_mismatch([Assigned((0.95, 0.05), (9500, 500)), Assigned((0.5, 0.5), (5000, 5000))]) < 0
    assert log_mismatch([Assigned((1.0, 0.0), (100, 0))]) == pytest.approx(0)
    assert log_mismatch([Assigned((1.0, 0.0), (100, 1))]) == inf


@given(
    st.lists(st.builds(lambda p: Rewards(*p), proportions), min_size=2, max_size=5),
    st.sampled_from((0.0, 0.05, 0.2)),
    st.integers(0, 99),
)
def test_thompson_shares_add_up_and_respect_the_floor(arms: list[Rewards], floor: float, seed: int) -> None:
    shares = thompson_shares(arms, floor, Random(seed), draws=50)
    assert sum(shares) == pytest.approx(1)
    assert all(share >= floor for share in shares)


def test_the_better_arm_gets_nearly_all() -> None:
    shares = thompson_shares([Rewards(50, 1000), Rewards(100, 1000)], 0.05, Random(1))
    assert shares == pytest.approx([0.05, 0.95], abs=0.01)
    even = thompson_shares([Rewards(50, 1000), Rewards(50, 1000)], 0.0, Random(1), draws=20_000)
    assert even == pytest.approx([0.5, 0.5], abs=0.02)
    with pytest.raises(ValueError, match="cannot each have"):
        thompson_shares([Rewards(0, 1)] * 3, 0.4, Random(1))
