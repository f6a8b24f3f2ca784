"""Tests of two arms: quantiles, and the interval of wide values. The oracles: enumeration and scipy."""

from math import inf, log
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import betaln, zeta

from policies.sequential.quantiles import bin_of, log_quantile_difference
from policies.sequential.subexponential import WideSum, stitched_bound

# ── quantiles ─────────────────────────────────────────────────────────────────────────────────────────


@given(
    st.lists(st.integers(-5, 5), min_size=1, max_size=40),
    st.lists(st.integers(-5, 5), min_size=1, max_size=40),
    st.sampled_from((0.5, 0.9, 0.95)),
)
def test_the_evidence_of_quantiles_is_that_of_every_point_of_every_bin(
    first: list[int], second: list[int], p: float
) -> None:
    """A search over all counts that a point can have below it, with scipy's beta function."""

    def log_e(below: int, total: int) -> float:
        a, b = 20 * p, 20 * (1 - p)
        mixture = float(betaln(a + below, b + total - below) - betaln(a, b))
        return mixture - below * log(p) - (total - below) * log(1 - p)

    least = inf
    for number in {*first, *second}:
        arms = []
        for values in (first, second):
            below, upper = sum(v < number for v in values), sum(v <= number for v in values)
            arms.append(min(log_e(s, len(values)) for s in range(below, upper + 1)))
        least = min(least, sum(arms))
    bins = [{v: values.count(v) for v in values} for values in (first, second)]
    assert log_quantile_difference(bins[0], bins[1], p) == pytest.approx(least, abs=1e-9)
    assert log_quantile_difference(bins[1], bins[0], p) == pytest.approx(least, abs=1e-9)


def test_quantiles_of_one_distribution_rarely_differ_and_others_do() -> None:
    alarms = 0
    for seed in range(60):
        rng, arms = Random(seed), ({}, {})  # type: tuple[Random, tuple[dict[int, int], dict[int, int]]]
        for i in range(1200):
            number = bin_of(rng.lognormvariate(0, 1))
            arms[i % 2][number] = arms[i % 2].get(number, 0) + 1
            if i % 40 == 39 and log_quantile_difference(*arms, 0.95) >= log(20):
                alarms += 1
                break
    assert alarms <= 60 * 0.05 + 3 * (60 * 0.05 * 0.95) ** 0.5
    rng = Random(5)
    fast = [bin_of(rng.lognormvariate(0, 0.5)) for _ in range(3000)]
    slow = [bin_of(1.5 * rng.lognormvariate(0, 0.5)) for _ in range(3000)]
    bins = [{v: values.count(v) for v in values} for values in (fast, slow)]
    assert log_quantile_difference(bins[0], bins[1], 0.5) > log(1000)
    assert log_quantile_difference(bins[0], {}, 0.5) == 0


# ── wide values ───────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("variance", [0.5, 10.0, 1e6])
@pytest.mark.parametrize("alpha", [0.05, 0.001])
def test_the_stitched_bound_is_the_one_of_the_paper(variance: float, alpha: float) -> None:
    """Howard et al., equation (10), with eta = 2, s = 1.4, m = 1 and c = 3; zeta by scipy."""
    used = max(variance, 1.0)
    ell = 1.4 * log(log(2 * used)) + log(float(zeta(1.4)) / (alpha * log(2) ** 1.4))
    k1, k2 = (2**0.25 + 2**-0.25) / 2**0.5, (2**0.5 + 1) / 2
    expected = (k1**2 * used * ell + (k2 * 3 * ell) ** 2) ** 0.5 + k2 * 3 * ell
    assert stitched_bound(variance, alpha, 3.0, 1.0) == pytest.approx(expected)


def test_the_interval_of_wide_values_holds_at_every_look_and_narrows() -> None:
    misses = 0
    for seed in range(60):
        rng, tokens, missed = Random(seed), WideSum(), False
        for i in range(1500):
            tokens.add(500.0 if rng.random() < 0.2 else 20.0, 1000.0)
            if i % 50 == 0:
                low, high = tokens.interval(0.05, 1000.0)
                missed = missed or not low <= 116 <= high
        misses += missed
    assert misses <= 3
    low, high = tokens.interval(0.05, 1000.0)
    assert high - low < 150
    assert WideSum().interval(0.05, 7.0) == (0.0, 7.0)


@given(st.lists(st.tuples(st.integers(0, 2), st.floats(-1, 200)), max_size=40))
def test_the_sums_of_processes_add_up(values: list[tuple[int, float]]) -> None:
    parts, total = [WideSum(), WideSum(), WideSum()], WideSum()
    for process, value in values:
        parts[process].add(value, 100.0)
    for part in parts:
        total.merge(part)
    assert total.count == len(values)
    assert total.total == pytest.approx(sum(min(max(value, 0), 100) for _, value in values))
    low, high = total.interval(0.05, 100.0)
    if values:
        assert 0 <= low <= total.total / total.count + 1e-9 <= high + 2e-9
