"""Figures of drift equal those of scipy and numpy, on random data of every kind."""

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import stats

from runtimes.tensor.drift.sketches import FINE, MAX_LABELS, OTHER, labels_of, numbers_of
from runtimes.tensor.drift.statistics import FLOOR, kolmogorov_smirnov, population_stability

ANY = st.floats(allow_nan=True, allow_infinity=True, width=64)
COLUMNS = arrays(np.float64, st.integers(1, 300), elements=ANY | st.sampled_from([0.0, 1.0, 1e300]))
SEEDS = st.integers(0, 2**32 - 1)


def rounded_up(edges: npt.NDArray[Any], values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The values at the ends of their bins, without those that are missing."""
    present = values[~np.isnan(values)]
    places: npt.NDArray[Any] = np.searchsorted(edges, present, side="left")
    return places


@pytest.mark.filterwarnings("ignore:divide by zero")  # in scipy's p-value of two samples of one value
@given(COLUMNS, COLUMNS, st.integers(2, 50))
def test_the_statistic_of_kolmogorov_and_smirnov_is_that_of_scipy(before: Any, now: Any, bins: int) -> None:
    sketch = numbers_of(before, bins)
    first, second = rounded_up(sketch.edges, before), rounded_up(sketch.edges, now)
    statistic = sketch.ks(sketch.count(now))
    if len(first) and len(second):
        assert statistic == pytest.approx(stats.ks_2samp(first, second, method="asymp").statistic, abs=1e-12)
    else:
        assert statistic == 0.0


@given(SEEDS, st.sampled_from(["normal", "exponential", "integers", "ties"]), st.floats(0, 2))
def test_rounding_to_bins_changes_the_statistic_by_the_share_of_a_bin_at_most(
    seed: int, kind: str, shift: float
) -> None:
    random = np.random.default_rng(seed)
    draw: Callable[[], Any] = {
        "normal": lambda: random.normal(size=2000),
        "exponential": lambda: random.exponential(size=2000),
        "integers": lambda: random.integers(0, 40, 2000).astype(float),
        "ties": lambda: np.round(random.normal(size=2000), 1),
    }[kind]
    before, now = draw(), draw() + shift
    sketch = numbers_of(before, 10)
    counts = sketch.count(now)
    exact = stats.ks_2samp(before, now, method="asymp").statistic
    largest = max((sketch.reference / 2000).max(), (counts / 2000).max())
    statistic = sketch.ks(counts)
    assert statistic is not None
    assert exact - largest - 1e-9 <= statistic <= exact + 1e-9


@given(COLUMNS, COLUMNS, st.integers(2, 50))
def test_the_stability_index_is_that_of_its_definition(before: Any, now: Any, bins: int) -> None:
    sketch = numbers_of(before, bins)
    counts = sketch.count(now)
    assert counts.sum() == len(now)
    assert sketch.reference.sum() == len(before)
    shares = []
    for each in (sketch.reference, counts):
        summed = [each[sketch.coarse == at].sum() for at in range(sketch.coarse.max() + 1)]
        shares.append([max(one / each.sum(), FLOOR) for one in summed])
    expected = sum((q - p) * np.log(q / p) for p, q in zip(*shares, strict=True))
    assert sketch.psi(counts) == pytest.approx(expected, abs=1e-9)
    assert sketch.psi(sketch.reference) == 0.0


@given(SEEDS)
def test_bins_of_distinct_numbers_are_equal(seed: int) -> None:
    values = np.random.default_rng(seed).normal(size=10 * FINE * 5)
    sketch = numbers_of(values, 10)
    assert (sketch.reference[1:-2] == 5).all()
    assert np.bincount(sketch.coarse, weights=sketch.reference)[1:-2].tolist() == [100.0] * 10


@given(SEEDS, st.sampled_from(["normal", "lognormal", "uniform", "constant"]))
def test_another_sample_of_the_same_distribution_has_no_drift(seed: int, kind: str) -> None:
    random = np.random.default_rng(seed)
    draw: Callable[[int], Any] = {
        "normal": lambda n: random.normal(3, 2, n),
        "lognormal": lambda n: random.lognormal(0, 2, n),
        "uniform": lambda n: random.uniform(-1e9, 1e9, n),
        "constant": lambda n: np.full(n, 7.0),
    }[kind]
    sketch = numbers_of(draw(20_000), 10)
    counts = sketch.count(draw(10_000))
    assert sketch.psi(counts) < 0.03
    assert (sketch.ks(counts) or 0.0) < 0.04


CHANGES: dict[str, Callable[[Any], Any]] = {
    "moved up": lambda x: x + 1.5,
    "moved down": lambda x: x - 1.5,
    "wider": lambda x: x * 4,
    "constant": lambda x: np.full_like(x, 0.3),
    "missing": lambda x: np.where(np.arange(len(x)) % 2, x, np.nan),
    "infinite": lambda x: np.full_like(x, np.inf),
    "all missing": lambda x: np.full_like(x, np.nan),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_of_a_distribution_is_drift(change: str) -> None:
    random = np.random.default_rng(1)
    sketch = numbers_of(random.normal(size=5000), 10)
    assert sketch.psi(sketch.count(CHANGES[change](random.normal(size=5000)))) > 0.25


@pytest.mark.parametrize("value", [6.9, 7.1, -1e308, 1e308, np.nan])
def test_another_constant_is_drift(value: float) -> None:
    sketch = numbers_of(np.full(100, 7.0), 10)
    assert sketch.psi(sketch.count(np.full(100, value))) > 1


@given(st.lists(st.binary(max_size=3), min_size=1, max_size=400), st.lists(st.binary(max_size=3), max_size=400))
def test_labels_are_counted_with_the_rare_and_the_new_as_one(before: list[bytes], now: list[bytes]) -> None:
    sketch = labels_of({value: before.count(value) for value in before})
    counts = sketch.count(now)
    assert counts.sum() == len(now)
    assert len(counts) <= MAX_LABELS + 1
    assert counts[-1] == sum(value not in sketch.names for value in now)
    shares = sketch.shares(counts)
    assert sum(shares.values()) == pytest.approx(1 if now else 0)
    assert OTHER in shares
    assert sketch.psi(sketch.reference) == 0.0


def test_a_label_that_vanished_and_a_new_one_are_drift() -> None:
    sketch = labels_of({b"Rome": 500, b"Oslo": 500})
    assert sketch.psi(sketch.count([b"Rome"] * 50 + [b"Oslo"] * 50)) < 0.01
    assert sketch.psi(sketch.count([b"Rome"] * 100)) > 0.25
    assert sketch.psi(sketch.count([b"Rome"] * 50 + [b"Paris"] * 50)) > 0.25


def test_no_values_are_neither_a_division_by_zero_nor_a_distance() -> None:
    empty = np.zeros(3, np.int64)
    assert kolmogorov_smirnov(empty, empty) == 0.0
    assert population_stability(empty, empty) == 0.0
