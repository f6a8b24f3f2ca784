"""The test of two arms' means: its e-value is one at most in the mean, for all shares and predictions."""

from itertools import product
from math import exp, log

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.sequential.effect import EffectSum

LENGTH = 6


def expected_e(rates: tuple[float, float], effect: float, *, above: bool) -> float:
    """The exact mean of the e-value after six values. Shares and predictions depend on the values before."""
    mean = 0.0
    for outcomes in product((0, 1), repeat=2 * LENGTH):
        sums, probability, total = EffectSum(), 1.0, 0
        for i in range(LENGTH):
            second, y = outcomes[2 * i], outcomes[2 * i + 1]
            share = 0.5 if i < 2 else 0.1 if total > i / 2 else 0.8
            rate = rates[second]
            probability *= (share if second else 1 - share) * (rate if y else 1 - rate)
            sums.add(bool(second), y - (0.5 + total) / (1 + i), share)
            total += y
        mean += probability * exp(sums.log_above(effect) if above else sums.log_below(effect))
    return mean


@pytest.mark.parametrize("rates", [(0.5, 0.5), (0.05, 0.05), (0.9, 0.9), (0.6, 0.2)])
def test_the_mean_of_the_e_value_is_at_most_one(rates: tuple[float, float]) -> None:
    effect = rates[1] - rates[0]
    assert expected_e(rates, effect, above=True) <= 1 + 1e-9
    assert expected_e(rates, effect, above=False) <= 1 + 1e-9


def test_the_e_value_grows_under_another_effect() -> None:
    assert expected_e((0.1, 0.9), 0.0, above=True) > 1.1
    assert expected_e((0.9, 0.1), 0.0, above=False) > 1.1


VALUES = st.lists(st.tuples(st.booleans(), st.floats(-1, 1), st.floats(0.01, 0.99)), min_size=1, max_size=200)


@given(VALUES, st.floats(0.001, 0.2))
def test_the_interval_has_the_effects_that_are_not_refuted(
    values: list[tuple[bool, float, float]], alpha: float
) -> None:
    sums = EffectSum()
    for second, residual, share in values:
        sums.add(second, residual, share)
    low, high = sums.interval(alpha)
    assert -1 <= low <= high <= 1
    needed = log(2 / alpha)
    if -1 < low < 1:
        assert sums.log_above(low) == pytest.approx(needed, abs=1e-6)
        assert sums.log_above(low + 0.01) < needed
    if -1 < high < 1:
        assert sums.log_below(high) == pytest.approx(needed, abs=1e-6)


@given(VALUES)
def test_each_value_is_bounded(values: list[tuple[bool, float, float]]) -> None:
    """The inequality behind the e-value needs a value less its prediction of -1 at least, in both directions."""
    sums = EffectSum()
    for second, residual, share in values:
        before = (sums.total, sums.squares)
        sums.add(second, residual, share)
        assert abs(sums.total - before[0]) <= 0.5 + 1e-12
        assert sums.squares - before[1] <= 1


def test_without_values_every_effect_is_possible() -> None:
    assert EffectSum().interval(0.05) == (-1.0, 1.0)
    assert EffectSum().log_above() == pytest.approx(0.0)
    assert EffectSum().estimate == 0.0
