"""Explanations of loaded models: those of the libraries run alone, and sums that add up for random models."""

import asyncio
from pathlib import Path
from typing import Any

import catboost
import joblib
import lightgbm
import numpy as np
import pytest
import xgboost
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sklearn.ensemble import GradientBoostingRegressor, RandomForestClassifier
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.neural_network import MLPClassifier

from adapters.errors import CallerError, CapacityError, DeadlineError
from adapters.tensors import Inference, Tensor, join_bytes
from runtimes.tensor.configuration.model_config import ModelConfig
from runtimes.tensor.explanations.explanation import Attributions, tensors_of
from runtimes.tensor.explanations.sampled import MAX_WAITING
from runtimes.tensor.interfaces import ModelLoadError
from tests.runtimes.tensor import loaded
from tests.runtimes.tensor.explaining import (
    BEHIND,
    TRUSTED,
    Summing,
    X,
    a_model,
    explained,
    pickled,
    request,
    served,
    summing,
)
from tests.support.absent import absent

Y = X[:, 0] * 2 - X[:, 1] * X[:, 2] + (X[:, 3] > 0)
CLASSES = np.digitize(Y, [-1, 1])


async def test_xgboost_has_its_own_contributions(tmp_path: Path) -> None:
    matrix = xgboost.DMatrix(X, CLASSES)
    booster = xgboost.train({"objective": "multi:softprob", "num_class": 3}, matrix, 8)
    folder = a_model(tmp_path, "explain: true\n", lambda folder: booster.save_model(folder / "model.ubj"))
    async with served(folder) as model:
        got = await explained(model, X[:9].astype(np.float32))
    alone = booster.predict(xgboost.DMatrix(X[:9]), pred_contribs=True)
    np.testing.assert_allclose(got.values, alone[:, :, :-1], atol=1e-5)
    np.testing.assert_allclose(got.base, alone[:, :, -1], atol=1e-5)
    np.testing.assert_allclose(got.output, booster.predict(xgboost.DMatrix(X[:9]), output_margin=True), atol=1e-5)
    assert (got.method, got.is_number, got.model_rows) == ("tree", False, 9)


async def test_lightgbm_has_its_own_contributions(tmp_path: Path) -> None:
    booster = lightgbm.train({"objective": "regression", "verbose": -1}, lightgbm.Dataset(X, Y), 8)
    folder = a_model(tmp_path, "explain: true\n", lambda folder: booster.save_model(folder / "model.txt"))
    async with served(folder) as model:
        got = await explained(model, X[:9])
    alone = booster.predict(X[:9], pred_contrib=True)
    np.testing.assert_allclose(got.values[:, 0], alone[:, :-1])
    np.testing.assert_allclose(got.base[:, 0], alone[:, -1])
    assert got.is_number


@pytest.mark.processes
async def test_catboost_has_its_own_contributions_also_with_categories(tmp_path: Path) -> None:
    table = np.array([[str(int(row[0] > 0)), row[1], row[2]] for row in X], object)
    pool = catboost.Pool(table, CLASSES, cat_features=[0], feature_names=["kind", "length", "width"])
    booster = catboost.CatBoost({"loss_function": "MultiClass", "iterations": 6, "allow_writing_files": False})
    booster.fit(pool, silent=True)
    folder = a_model(tmp_path, "explain: true\n", lambda folder: booster.save_model(str(folder / "model.cbm")))
    kinds = [text.encode() for text in table[:5, 0]]
    inputs = [Tensor("kind", "BYTES", (5, 1), join_bytes(kinds))]
    inputs += [Tensor(name, "FP64", (5, 1), X[:5, at].tobytes()) for at, name in enumerate(("length", "width"), 1)]
    async with served(folder) as model:
        assert model.explainer is not None
        deadline = asyncio.get_running_loop().time() + 300
        got = await model.explainer.explain(Inference("m", inputs=inputs), deadline)
        names = [tensor.name for tensor in tensors_of(got, model.config, 2)]
    alone = booster.get_feature_importance(catboost.Pool(table[:5], cat_features=[0]), type="ShapValues")
    np.testing.assert_allclose(got.values, alone[:, :, :-1])
    np.testing.assert_allclose(got.base, alone[:, :, -1])
    assert names == ["values.kind", "values.length", "values.width", "base", "output", "error", "target"]


@pytest.mark.processes
async def test_an_estimator_of_xgboost_has_its_own_mark_of_missing_numbers(tmp_path: Path) -> None:
    table = np.where(X[:, :3] < -1, -999, X[:, :3])
    model = xgboost.XGBRegressor(n_estimators=6, missing=-999).fit(table, Y)
    rows = np.array([[-999, 0.5, 0.5], [0.5, -999, -999]])
    async with served(pickled(tmp_path, model, "{method: tree}")) as loaded_model:
        got = await explained(loaded_model, rows)
    alone = model.get_booster().predict(xgboost.DMatrix(rows, missing=-999), pred_contribs=True)
    np.testing.assert_allclose(got.values[:, 0], alone[:, :-1], atol=1e-5)
    np.testing.assert_allclose(got.output[:, 0], model.predict(rows), atol=1e-5)


@pytest.mark.processes
async def test_an_estimator_of_catboost_has_contributions_of_its_categories(tmp_path: Path) -> None:
    table = np.array([[str(int(row[0] > 0)), row[1]] for row in X], object)
    model = catboost.CatBoostRegressor(iterations=6, allow_writing_files=False, silent=True)
    model.fit(table, Y, cat_features=[0])
    yaml = (
        f"backend: sklearn\n{TRUSTED}max_batch_size: 8\nexplain: {{method: tree}}\n"
        "inputs: [{name: kind, datatype: BYTES, dims: [1]}, {name: length, datatype: FP64, dims: [1]}]\n"
        "outputs: [{name: predict, datatype: FP64, dims: [1], reshape: []}]\n"
    )
    folder = a_model(tmp_path, yaml, lambda folder: joblib.dump(model, folder / "model.joblib"))
    kinds = [text.encode() for text in table[:5, 0]]
    sent = [Tensor("kind", "BYTES", (5, 1), join_bytes(kinds)), Tensor("length", "FP64", (5, 1), X[:5, 1].tobytes())]
    async with served(folder) as loaded_model:
        assert loaded_model.explainer is not None
        deadline = asyncio.get_running_loop().time() + 300
        got = await loaded_model.explainer.explain(Inference("m", inputs=sent), deadline)
    alone = model.get_feature_importance(catboost.Pool(table[:5], cat_features=[0]), type="ShapValues")
    np.testing.assert_allclose(got.values[:, 0], alone[:, :-1])


@pytest.mark.processes
async def test_catboost_has_contributions_of_categories_that_are_whole_numbers(tmp_path: Path) -> None:
    table = np.array([[int(row[0] > 0), row[1]] for row in X], object)
    pool = catboost.Pool(table, Y, cat_features=[0], feature_names=["kind", "length"])
    booster = catboost.CatBoost({"loss_function": "RMSE", "iterations": 6, "allow_writing_files": False})
    booster.fit(pool, silent=True)
    inputs = "[{name: kind, datatype: INT64, dims: [1]}, {name: length, datatype: FP64, dims: [1]}]"
    yaml = f"explain: {{method: tree}}\ninputs: {inputs}\n"
    folder = a_model(tmp_path, yaml, lambda folder: booster.save_model(str(folder / "model.cbm")))
    kinds = table[:5, 0].astype(np.int64)
    sent = [Tensor("kind", "INT64", (5, 1), kinds.tobytes()), Tensor("length", "FP64", (5, 1), X[:5, 1].tobytes())]
    async with served(folder) as model:
        assert model.explainer is not None
        got = await model.explainer.explain(Inference("m", inputs=sent), asyncio.get_running_loop().time() + 300)
    alone = booster.get_feature_importance(catboost.Pool(table[:5], cat_features=[0]), type="ShapValues")
    np.testing.assert_allclose(got.values[:, 0], alone[:, :-1])


@pytest.mark.processes
@pytest.mark.filterwarnings("ignore")  # of shap
@pytest.mark.parametrize("kind", [RandomForestClassifier, GradientBoostingRegressor])
async def test_trees_of_scikit_learn_have_the_values_of_shap(tmp_path: Path, kind: Any) -> None:
    try:
        import shap
    except ModuleNotFoundError as error:
        absent(error)
    model = kind(n_estimators=5, max_depth=4, random_state=0).fit(X, CLASSES if "Class" in kind.__name__ else Y)
    async with served(pickled(tmp_path, model, "{method: tree}")) as loaded_model:
        got = await explained(loaded_model, X[:4])
    alone = np.asarray(shap.TreeExplainer(model).shap_values(X[:4]))
    np.testing.assert_allclose(got.values, np.moveaxis(alone, 2, 1) if alone.ndim == 3 else alone[:, None], atol=1e-9)


@pytest.mark.processes
async def test_a_linear_model_has_its_weights_times_the_distance_from_the_background(tmp_path: Path) -> None:
    model = LinearRegression().fit(X, Y)
    async with served(pickled(tmp_path, model, "{background: behind.npy}")) as loaded_model:
        got = await explained(loaded_model, X[10:13])
    np.testing.assert_allclose(got.values[:, 0], model.coef_ * (X[10:13] - BEHIND.mean(axis=0)), atol=1e-9)
    np.testing.assert_allclose(got.base[:, 0], model.predict(BEHIND).mean())
    assert (got.method, got.is_number) == ("exact", True)


@pytest.mark.processes
@pytest.mark.filterwarnings("ignore")  # of shap and numba
async def test_permutations_agree_with_shap_run_alone(tmp_path: Path) -> None:
    try:
        import shap
    except ModuleNotFoundError as error:
        absent(error)
    wide = np.random.default_rng(1).normal(size=(60, 14))
    model = LogisticRegression(max_iter=1000).fit(wide, wide[:, 0] + wide[:, 1] * 2 > 0)
    folder = pickled(tmp_path, model, "{background: behind.npy, output: predict_proba, budget: 200000}")
    np.save(folder / "behind.npy", wide[:5])
    async with served(folder) as loaded_model:
        got = await explained(loaded_model, wide[20:22])
        again = await explained(loaded_model, wide[20:22])
        other = await explained(loaded_model, wide[20:22], seed=3)
    masker = shap.maskers.Independent(wide[:5], max_samples=5)
    alone = shap.explainers.Permutation(model.predict_proba, masker, seed=0)(wide[20:22], max_evals=20 * 29)
    assert got.method == "permutation"
    np.testing.assert_allclose(np.moveaxis(got.values, 1, 2), alone.values, atol=0.02)
    np.testing.assert_allclose(got.base, alone.base_values, atol=1e-9)
    assert got.error.max() < 1e-9
    np.testing.assert_array_equal(got.values, again.values)
    assert not np.array_equal(got.values, other.values)


@pytest.mark.processes
async def test_a_request_over_the_budget_is_refused_with_the_rows_that_it_needs(tmp_path: Path) -> None:
    model = MLPClassifier((4,), max_iter=5, random_state=0)
    with pytest.warns(ConvergenceWarning):
        model.fit(X, CLASSES)
    async with served(pickled(tmp_path, model, "{background: behind.npy, budget: 200}")) as loaded_model:
        got = await explained(loaded_model, X[:1])
        assert got.model_rows <= 200
        with pytest.raises(CallerError, match="8 rows needs at least 392 rows of the model, and the budget is 200"):
            await explained(loaded_model, np.concatenate([X[:4]] * 2))


async def test_the_deadline_ends_an_explanation_with_the_permutations_that_are_complete() -> None:
    far = asyncio.get_running_loop().time() + 300
    whole = await summing(Summing(99)).explain(request(np.ones((1, 13))), far)
    assert whole.model_rows == 1 + 10 * 4 * 24
    some = await summing(Summing(2 + 2 * 3 + 1, DeadlineError)).explain(request(np.ones((1, 13))), far)
    assert 1 + 3 * 4 * 24 < some.model_rows < 1 + 4 * 4 * 24
    np.testing.assert_allclose(some.values, 1)
    with pytest.raises(DeadlineError):
        await summing(Summing(3, DeadlineError)).explain(request(np.ones((1, 13))), far)


@pytest.mark.parametrize("calls", [0, 1, 3])
async def test_a_model_that_never_answers_ends_at_the_deadline(calls: int) -> None:
    explainer = summing(scheduler := Summing(calls))
    with pytest.raises(DeadlineError):
        await explainer.explain(request(np.ones((1, 13))), asyncio.get_running_loop().time() + 0.05)
    scheduler.calls = 99
    again = await explainer.explain(request(np.ones((1, 13))), asyncio.get_running_loop().time() + 300)
    np.testing.assert_allclose(again.values, 1)


async def test_too_many_waiting_explanations_are_refused() -> None:
    explainer = summing(Summing(0))
    soon = asyncio.get_running_loop().time() + 1
    requests = [explainer.explain(request(np.ones((1, 13))), soon) for _ in range(MAX_WAITING + 2)]
    errors = await asyncio.gather(*requests, return_exceptions=True)
    assert {type(error) for error in errors} == {DeadlineError, CapacityError}


async def test_a_request_has_wrong_inputs(tmp_path: Path) -> None:
    booster = lightgbm.train({"objective": "regression", "verbose": -1}, lightgbm.Dataset(X, Y), 2)
    yaml = "explain: {method: permutation, background: behind.npy}\n"
    async with served(a_model(tmp_path, yaml, lambda folder: booster.save_model(folder / "model.txt"))) as model:
        with pytest.raises(CallerError, match="unexpected shape"):
            await explained(model, X[:1, :4])
        with pytest.raises(CallerError, match="data-type is 'FP32'"):
            await explained(model, X[:1].astype(np.float32))
        for seed in (-1, "one", True):
            with pytest.raises(CallerError, match="`seed` is a whole number"):
                await explained(model, X[:1], seed=seed)


@pytest.mark.processes
@pytest.mark.parametrize(
    ("explain", "message"),
    [
        ("{method: tree}", "explain: a LinearRegression is no model of trees: use `method: permutation`"),
        ("true", "explain: `background` is required"),
        ("{background: behind.npy, output: predict}", ""),
    ],
)
async def test_a_model_that_cannot_be_explained_is_not_loaded(tmp_path: Path, explain: str, message: str) -> None:
    folder = pickled(tmp_path, LinearRegression().fit(X, Y), explain)
    if not message:
        async with served(folder) as model:
            assert model.explainer is not None
        return
    with pytest.raises(ModelLoadError, match=message):
        await loaded.load(folder)


@given(
    seed=st.integers(0, 2**16),
    trees=st.integers(1, 6),
    features=st.integers(1, 6),
    rows=st.integers(1, 4),
    objective=st.sampled_from(["reg:squarederror", "binary:logistic", "multi:softprob", "count:poisson"]),
    method=st.sampled_from(["tree", "permutation"]),
)
@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_explanations_of_random_models_add_up(
    tmp_path_factory: pytest.TempPathFactory, seed: int, trees: int, features: int, rows: int, objective: str,
    method: str,
) -> None:  # fmt: skip
    random = np.random.default_rng(seed)
    table = random.normal(size=(40, features)).astype(np.float32)
    table[random.random(table.shape) < 0.1] = np.nan
    classes = {"num_class": 3} if objective.startswith("multi") else {}
    target = random.integers(0, 3 if classes else 2, 40)
    booster = xgboost.train({"objective": objective, "seed": seed, **classes}, xgboost.DMatrix(table, target), trees)
    yaml = f"explain: {{method: {method}, background: behind.npy, budget: 5000}}\n"
    folder = a_model(tmp_path_factory.mktemp("random"), yaml, lambda folder: booster.save_model(folder / "model.json"))
    np.save(folder / "behind.npy", table[:7])

    async def run() -> tuple[Attributions, ModelConfig]:
        async with served(folder) as model:
            return await explained(model, table[-rows:]), model.config

    got, config = asyncio.run(run())
    expected = booster.predict(xgboost.DMatrix(table[-rows:]), output_margin=method == "tree").reshape(rows, -1)
    np.testing.assert_allclose(got.output, expected, atol=1e-5)
    np.testing.assert_allclose(got.base + got.values.sum(axis=2), expected, atol=1e-4)
    tensors = {tensor.name: tensor.shape for tensor in tensors_of(got, config, None)}
    one = () if got.is_number else (expected.shape[1],)
    assert tensors == {"values": (rows, *one, features), "base": (rows, *one), "output": (rows, *one), "error": (rows,)}
