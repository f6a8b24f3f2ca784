"""Kernel SHAP: the library run alone, models that add, budgets and deadlines."""

import asyncio
from pathlib import Path

import lightgbm
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import LogisticRegression

from adapters.errors import CallerError, DeadlineError
from runtimes.tensor.explanations import kernel
from runtimes.tensor.explanations.permutations import AllCoalitions
from runtimes.tensor.interfaces import ModelLoadError
from tests.runtimes.tensor import loaded
from tests.runtimes.tensor.explaining import Summing, X, a_model, explained, pickled, request, served, summing
from tests.support.absent import absent


def far() -> float:
    return asyncio.get_running_loop().time() + 300


@pytest.mark.processes
@pytest.mark.filterwarnings("ignore")  # of shap and numba
@pytest.mark.parametrize(("features", "method", "gap"), [(5, "exact", 1e-9), (14, "kernel", 0.02)])
async def test_a_regression_agrees_with_shap_run_alone(tmp_path: Path, features: int, method: str, gap: float) -> None:
    try:
        import shap
    except ModuleNotFoundError as error:
        absent(error)
    wide = np.random.default_rng(1).normal(size=(60, features))
    model = LogisticRegression(max_iter=1000).fit(wide, wide[:, 0] + wide[:, 1] * 2 > 0)
    rules = "{method: kernel, background: behind.npy, output: predict_proba, budget: 30000}"
    folder = pickled(tmp_path, model, rules)
    np.save(folder / "behind.npy", wide[:5])
    async with served(folder) as loaded_model:
        got = await explained(loaded_model, wide[20:22])
        again = await explained(loaded_model, wide[20:22])
        other = await explained(loaded_model, wide[20:22], seed=3)
    alone = shap.KernelExplainer(model.predict_proba, wide[:5]).shap_values(wide[20:22], l1_reg=0, silent=True)
    assert got.method == method
    assert got.model_rows <= 30000
    np.testing.assert_allclose(np.moveaxis(got.values, 1, 2), alone, atol=gap)
    np.testing.assert_allclose(got.base[0], model.predict_proba(wide[:5]).mean(axis=0))
    assert got.error.max() < 1e-9
    np.testing.assert_array_equal(got.values, again.values)
    assert np.array_equal(got.values, other.values) == (method == "exact")


@given(st.integers(13, 18), st.integers(0, 400), st.integers(1, 3), st.integers(0, 99))
@settings(deadline=None, max_examples=25)
def test_a_sum_of_features_has_its_weights_from_few_coalitions(features: int, spare: int, rows: int, seed: int) -> None:
    random = np.random.default_rng(seed)
    parts = random.normal(size=(rows, 2, features))
    estimate = kernel.begin(rows, features, kernel.least(features) + spare, seed)
    base = random.normal(size=(rows, 2))
    full = base + parts.sum(axis=2)
    while (masks := estimate.round()) is not None:
        each = masks.reshape(rows, -1, features)
        estimate.add(base[:, None] + np.einsum("rcf,rtf->rct", each, parts), base, full)
    np.testing.assert_allclose(estimate.values(base, full), parts, atol=1e-8)


@given(st.integers(2, 12), st.integers(0, 300), st.integers(0, 99))
@settings(deadline=None, max_examples=40)
def test_coalitions_are_different_and_their_sizes_have_the_weights_of_the_kernel(
    features: int, spare: int, seed: int
) -> None:
    most = kernel.least(features) + spare
    masks, weights, fixed = kernel.chosen(features, most, np.random.default_rng(seed))
    assert len({mask.tobytes() for mask in masks}) == len(masks) == len(weights) <= most
    assert fixed >= min(kernel.least(features), len(masks))
    sizes = masks.sum(axis=1)
    assert np.array_equal(np.bincount(sizes), np.bincount(features - sizes, minlength=sizes.max() + 1))
    if isinstance(kernel.begin(1, features, most, seed), AllCoalitions):
        assert len(masks) == fixed == 2**features - 2
        ideal = 1 / (sizes * (features - sizes))
        ideal /= np.array([len(sizes[sizes == size]) for size in sizes])
        np.testing.assert_allclose(weights / weights.sum(), ideal / ideal.sum())


async def test_the_deadline_ends_a_regression_with_the_coalitions_that_are_complete() -> None:
    rows = np.arange(13.0)[None]
    whole = await summing(Summing(999), method="kernel").explain(request(rows), far())
    assert (whole.method, whole.model_rows) == ("kernel", 1 + 4 * (2048 + 26))
    np.testing.assert_allclose(whole.values[:, 0], rows, atol=1e-9)
    some = await summing(Summing(40, DeadlineError), method="kernel").explain(request(rows), far())
    assert some.model_rows < whole.model_rows
    np.testing.assert_allclose(some.values[:, 0], rows, atol=1e-9)
    with pytest.raises(DeadlineError) as caught:
        await summing(Summing(9, DeadlineError), method="kernel").explain(request(rows), far())
    assert caught.value.device_ms == 8 * 250  # without the base, which is that of all requests
    with pytest.raises(CallerError, match="1 rows needs at least 105 rows of the model, and the budget is 104"):
        await summing(Summing(9), budget=104, method="kernel").explain(request(rows), far())


async def test_a_model_of_too_many_features_is_not_loaded(tmp_path: Path) -> None:
    data = lightgbm.Dataset(np.random.default_rng(0).normal(size=(60, 1025)), X[:60, 0])
    booster = lightgbm.train({"objective": "regression", "verbose": -1}, data, 1)
    yaml = "explain: {method: kernel, background: behind.npy}\n"
    folder = a_model(tmp_path, yaml, lambda folder: booster.save_model(folder / "model.txt"))
    np.save(folder / "behind.npy", np.zeros((2, 1025)))
    with pytest.raises(ModelLoadError, match=r"1025 features, and at most 1024 are explained"):
        await loaded.load(folder)
