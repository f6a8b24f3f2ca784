"""The event test: exact means by enumeration, exact error rates by dynamic programming, scipy as the oracle."""

from itertools import product
from math import comb, exp, inf, isclose, log, prod

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import brentq
from scipy.special import betaln

from policies.sequential.event_ratio import FALLS, RISES, EventCount, e_value, log_fall, log_rise, ratio_interval

SHARES = (0.01, 0.05, 0.5)
counts = st.integers(0, 400).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n)))
strata = st.lists(
    st.builds(lambda share, pair: EventCount(share, *pair), st.sampled_from((0.01, 0.05, 0.2, 0.5, 0.9)), counts),
    min_size=1,
    max_size=4,
)


def probability(share: float, ratio: float) -> float:
    return share * ratio / (share * ratio + 1 - share)


@pytest.mark.parametrize("share", SHARES)
@pytest.mark.parametrize("events", range(1, 13))
@pytest.mark.parametrize("ratio", [1.0, 1.2, 2.0])
def test_the_mean_of_the_e_value_is_one_where_the_ratio_is_the_tested_one(
    share: float, events: int, ratio: float
) -> None:
    q = probability(share, ratio)
    for log_e in (log_rise, log_fall):
        mean = sum(
            comb(events, s) * q**s * (1 - q) ** (events - s) * exp(log_e([EventCount(share, events, s)], ratio))
            for s in range(events + 1)
        )
        assert isclose(mean, 1, rel_tol=1e-9)


@pytest.mark.parametrize("truth", [0.3, 0.8, 1.2])
def test_over_two_shares_the_mean_is_at_most_one_within_the_hypothesis(truth: float) -> None:
    """The alarm's e-value while the canary is no worse, the proof's while it is no better; 5 events at each share."""
    first, second, events = 0.05, 0.5, 5
    for log_e, holds in ((log_rise, truth <= 1), (log_fall, truth >= 1)):
        mean = 0.0
        for s, t in product(range(events + 1), repeat=2):
            weight = prod(
                comb(events, x) * probability(w, truth) ** x * (1 - probability(w, truth)) ** (events - x)
                for w, x in ((first, s), (second, t))
            )
            mean += weight * exp(log_e([EventCount(first, events, s), EventCount(second, events, t)], 1.0))
        assert (mean <= 1 + 1e-12) is holds


def ever_alarms(share: float, alpha: float, events: int) -> float:
    """The exact probability of an alarm at any of so many events of equal arms."""
    alive, alarmed, least = {0: 1.0}, 0.0, 0
    for n in range(1, events + 1):
        # The fewest events of the canary that alarm: the evidence grows with them, and falls with those of the other.
        while least <= n and log_rise([EventCount(share, n, least)]) < -log(alpha):
            least += 1
        after: dict[int, float] = {}
        for s, p in alive.items():
            after[s] = after.get(s, 0.0) + p * (1 - share)
            after[s + 1] = after.get(s + 1, 0.0) + p * share
        alarmed += sum(p for s, p in after.items() if s >= least)
        alive = {s: p for s, p in after.items() if s < least and p > 1e-12}
    return alarmed


@pytest.mark.parametrize(
    ("share", "alpha", "expected"),
    [(0.05, 0.05, 0.027), (0.05, 0.01, 0.005), (0.5, 0.05, 0.037), (0.5, 0.01, 0.008)],
)
def test_looking_at_each_of_1000_events_does_not_exceed_alpha(share: float, alpha: float, expected: float) -> None:
    error = ever_alarms(share, alpha, 1000)
    assert error <= alpha
    assert error == pytest.approx(expected, abs=0.0006)


@given(strata, st.integers(1, 9))
def test_the_order_of_the_strata_and_of_the_sums_does_not_matter(counted: list[EventCount], at: int) -> None:
    """Two processes that count halves have the e-value of a process that counts all."""
    halves = [EventCount(s.share, s.total - s.total // at, s.canary - min(s.canary, s.total // at)) for s in counted]
    rest = [EventCount(s.share, s.total // at, min(s.canary, s.total // at)) for s in counted]
    for log_e in (log_rise, log_fall):
        assert log_e([*halves, *rest], 1.5) == pytest.approx(log_e(counted, 1.5), abs=1e-6)
        assert log_e(counted[::-1], 1.5) == pytest.approx(log_e(counted, 1.5), abs=1e-6)


@given(strata, st.sampled_from((0.5, 1.0, 2.0)))
def test_one_more_event_of_the_canary_is_more_evidence_against_it(counted: list[EventCount], ratio: float) -> None:
    share, total, canary = counted[0]
    worse = [EventCount(share, total + 1, canary + 1), *counted[1:]]
    better = [EventCount(share, total + 1, canary), *counted[1:]]
    assert log_rise(worse, ratio) > log_rise(counted, ratio) > log_rise(better, ratio)
    assert log_fall(worse, ratio) < log_fall(counted, ratio) < log_fall(better, ratio)


def test_steps_that_contradict_each_other_give_the_span_of_their_intervals() -> None:
    """The canary was far worse in one step and far better in the next: no ratio fits both."""
    worse, better = EventCount(0.05, 200, 150), EventCount(0.5, 200, 5)
    low, high = ratio_interval([worse, better], 0.05)
    assert low < 5 / 195 < 150 / 50 * 19 < high


def test_a_share_of_nothing_or_everything_is_no_evidence() -> None:
    """Blue-green: at 100 % there is no other arm to compare with."""
    for share, canary in ((0.0, 0), (1.0, 500)):
        assert log_rise([EventCount(share, 500, canary)]) == 0.0
        assert ratio_interval([EventCount(share, 500, canary)], 0.05) == (0.0, inf)
    assert log_rise([]) == 0.0


def test_no_event_proves_nothing() -> None:
    """An idle canary is neither better nor worse."""
    assert e_value(log_rise([EventCount(0.05, 0, 0)])) == e_value(log_fall([EventCount(0.05, 0, 0)], 2.0)) == 1.0


def test_the_mixture_is_the_mean_of_the_likelihood_ratios() -> None:
    share, total, canary = 0.05, 40, 6
    for log_e, factors in ((log_rise, RISES), (log_fall, FALLS)):
        q0 = probability(share, 1.5)
        ratios = [
            (probability(share, 1.5 * g) / q0) ** canary
            * ((1 - probability(share, 1.5 * g)) / (1 - q0)) ** (total - canary)
            for g in factors
        ]
        assert e_value(log_e([EventCount(share, total, canary)], 1.5)) == pytest.approx(sum(ratios) / len(ratios))


def test_an_e_value_beyond_a_float_is_infinite() -> None:
    assert e_value(log_rise([EventCount(0.01, 10_000, 10_000)])) == inf


@pytest.mark.parametrize("share", SHARES)
@pytest.mark.parametrize(("total", "canary"), [(1, 0), (1, 1), (40, 6), (400, 20), (5000, 2600)])
@pytest.mark.parametrize("alpha", [0.05, 0.01])
def test_the_interval_is_scipys(share: float, total: int, canary: int, alpha: float) -> None:
    """The formula of the research on its own: in q, with scipy's beta function and root finder."""
    a, b = 10 * share, 10 * (1 - share)

    def log_e(q: float) -> float:
        mixture = betaln(a + canary, b + total - canary) - betaln(a, b)
        return float(mixture - canary * log(q) - (total - canary) * log(1 - q) + log(alpha))

    centre = min(max((canary + a) / (total + 10), 1e-9), 1 - 1e-9)
    low, high = ratio_interval([EventCount(share, total, canary)], alpha)
    odds = share / (1 - share)
    if canary:
        q = brentq(log_e, 1e-300, canary / total if canary < total else 1 - 1e-12, xtol=1e-15)
        assert low == pytest.approx(q / (1 - q) / odds, rel=1e-6)
    else:
        assert low == 0
    if canary < total:
        q = brentq(log_e, max(canary / total, 1e-15), 1 - 1e-15, xtol=1e-15)
        assert high == pytest.approx(q / (1 - q) / odds, rel=1e-4)
    else:
        assert high == inf
    assert low <= centre / (1 - centre) / odds * 1.5


@given(strata, st.sampled_from((0.05, 0.01)))
def test_the_interval_has_the_estimate_and_grows_with_the_confidence(counted: list[EventCount], alpha: float) -> None:
    low, high = ratio_interval(counted, alpha)
    assert 0 <= low <= high
    share, total, canary = counted[0]
    low, high = ratio_interval(counted[:1], alpha)
    wider = ratio_interval(counted[:1], alpha / 10)
    assert 0 <= wider[0] <= low <= high <= wider[1]
    if 0 < canary < total:
        assert low <= canary / (total - canary) * (1 - share) / share <= high


@pytest.mark.parametrize(
    ("share", "baseline", "canary"),
    [
        # kayenta #426: failures in six intervals, none of the baseline. As a canary of 5 % and of 20 %.
        (0.05, [0, 0, 0, 0, 0, 0], [0, 1, 2, 1, 0, 0]),
        # kayenta #799: the baseline's series is empty.
        (0.5, [0, 0, 0, 0, 0], [1, 4, 2, 3, 1]),
        # spinnaker #6278: seven of ten points are a hundred times as high.
        (0.5, [1] * 10, [100] * 7 + [1] * 3),
        (0.05, [1] * 10, [100] * 7 + [1] * 3),
    ],
)
def test_arrays_that_a_rank_test_passes_alarm(share: float, baseline: list[int], canary: list[int]) -> None:
    """Kayenta's Mann-Whitney judge reports "Pass" for these counts of failures."""
    events = EventCount(share, sum(baseline) + sum(canary), sum(canary))
    assert e_value(log_rise([events])) >= 100


def test_four_failures_at_even_shares_are_chance() -> None:
    """The array of kayenta #426 with as much traffic in both arms: one run of sixteen looks so."""
    assert e_value(log_rise([EventCount(0.5, 4, 4)])) < 20
