"""Models of CatBoost, each trained here: its own classes' answers, whatever the loss and the kinds of features."""

from pathlib import Path
from typing import Any

import catboost
import numpy as np
import pandas
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from runtimes.tensor.backends.registry import backend, complete_config, in_thread, load_model
from runtimes.tensor.configuration.model_config import ModelConfig, TensorSpec
from runtimes.tensor.instances import placement
from runtimes.tensor.interfaces import Device, Model, ModelLoadError
from tests.runtimes.tensor.instances.support import outputs, running

DRAWN = np.random.default_rng(5)
X = DRAWN.normal(size=(120, 3))
NUMBER, COUNT, TWO = X @ [1.0, 2.0, -1.0], DRAWN.integers(0, 6, 120), X[:, 0] > 0
NAMED = np.array(["low", "middle", "high"])[DRAWN.integers(0, 3, 120)]
SMALL: dict[str, Any] = {"iterations": 4, "verbose": False, "allow_writing_files": False, "thread_count": 1}
REGRESSIONS: dict[str, Any] = {
    "RMSE": NUMBER, "Quantile": NUMBER, "Poisson": COUNT, "Tweedie:variance_power=1.5": COUNT,
    "RMSEWithUncertainty": NUMBER, "MultiRMSE": X[:, :2],
}  # fmt: skip
CLASSES: dict[str, Any] = {"Logloss": TWO, "MultiClass": NAMED, "MultiClassOneVsAll": NAMED}
TABLE = pandas.DataFrame(
    {"size": X[:, 0], "city": DRAWN.choice(["Rome", "Lima"], 120), "month": DRAWN.integers(1, 13, 120)}
)


def load(folder: Path, **written: Any) -> tuple[ModelConfig, Model]:
    kind = backend("catboost")
    config = complete_config(kind, ModelConfig("model", "catboost", **written), folder)
    return config, load_model(kind, config, folder, Device(threads=1)).model


def saved(model: Any, folder: Path, form: str = "cbm") -> Path:
    model.save_model(str(folder / "model.cbm"), format=form)
    return folder


def mixed(kind: Any = catboost.CatBoostClassifier, target: Any = TWO) -> Any:
    return kind(**SMALL, cat_features=["city", "month"]).fit(TABLE, target)


@pytest.mark.parametrize("form", ["cbm", "json"])
@pytest.mark.parametrize("loss", REGRESSIONS)
def test_a_regression_answers_as_its_class(loss: str, form: str, tmp_path: Path) -> None:
    model = catboost.CatBoostRegressor(loss_function=loss, **SMALL).fit(X, REGRESSIONS[loss])
    config, served = load(saved(model, tmp_path, form))
    assert [spec.name for spec in config.outputs] == ["predict"]
    assert config.inputs == (TensorSpec("input", "FP64", (3,)),)
    got, expected = served.infer({"input": X})["predict"], model.predict(X)
    np.testing.assert_allclose(got.reshape(expected.shape), expected, rtol=1e-6)


@pytest.mark.parametrize("loss", CLASSES)
def test_a_classifier_answers_as_its_class(loss: str, tmp_path: Path) -> None:
    model = catboost.CatBoostClassifier(loss_function=loss, **SMALL).fit(X, CLASSES[loss])
    config, served = load(saved(model, tmp_path))
    assert [spec.name for spec in config.outputs] == ["predict", "predict_proba"]
    got = served.infer({"input": X})
    assert [str(one) for one in got["predict"].ravel()] == [str(one) for one in np.ravel(model.predict(X))]
    np.testing.assert_allclose(got["predict_proba"], model.predict_proba(X), rtol=1e-6)
    written = TensorSpec("predict_log_proba", "FP64", got["predict_proba"].shape[1:])
    _, logarithms = load(tmp_path, outputs=(written,))
    np.testing.assert_allclose(
        logarithms.infer({"input": X})["predict_log_proba"], model.predict_log_proba(X), rtol=1e-6
    )


def test_margins_are_returned_on_demand(tmp_path: Path) -> None:
    model = catboost.CatBoostClassifier(**SMALL).fit(X, TWO)
    _, served = load(
        saved(model, tmp_path), parameters={"predict_type": "margin"}, outputs=(TensorSpec("predict", "FP64", (1,)),)
    )
    margins = served.infer({"input": X})["predict"].ravel()
    np.testing.assert_allclose(margins, model.predict(X, prediction_type="RawFormulaVal"), rtol=1e-6)
    with pytest.raises(ModelLoadError, match="`predict_type` is value or margin, not `odds`"):
        load(tmp_path, parameters={"predict_type": "odds"})


def test_each_feature_of_a_model_with_categories_is_an_input(tmp_path: Path) -> None:
    config, served = load(saved(model := mixed(), tmp_path))
    assert config.inputs == (
        TensorSpec("size", "FP64", (1,)), TensorSpec("city", "BYTES", (1,)), TensorSpec("month", "BYTES", (1,)),
    )  # fmt: skip
    assert not in_thread(config)
    columns = {name: np.array([[str(one).encode()] for one in TABLE[name]], dtype=object) for name in ("city", "month")}
    got = served.infer({**columns, "size": TABLE[["size"]].to_numpy()})["predict_proba"]
    np.testing.assert_allclose(got, model.predict_proba(TABLE), rtol=1e-6)


@pytest.mark.parametrize("order", [("size", "city", "month"), ("month", "size", "city")])
def test_categories_may_be_whole_numbers_in_any_order(order: tuple[str, ...], tmp_path: Path) -> None:
    datatypes = {"size": "FP32", "city": "BYTES", "month": "INT32"}
    inputs = tuple(TensorSpec(name, datatypes[name], (1,)) for name in order)
    _, served = load(saved(model := mixed(), tmp_path), inputs=inputs)
    cities = np.array([[one.encode()] for one in TABLE["city"]], dtype=object)
    got = served.infer({
        "size": TABLE[["size"]].to_numpy(np.float32), "city": cities, "month": TABLE[["month"]].to_numpy(np.int32),
    })["predict_proba"]  # fmt: skip
    np.testing.assert_allclose(got, model.predict_proba(TABLE), rtol=1e-5)


@pytest.mark.processes
async def test_a_model_with_texts_is_served_in_a_process(tmp_path: Path) -> None:
    model = mixed(catboost.CatBoostRegressor, NUMBER)
    completed = await placement.complete(ModelConfig("model", "catboost"), saved(model, tmp_path))
    columns = {name: np.array([[str(one).encode()] for one in TABLE[name]], dtype=object) for name in ("city", "month")}
    async with running(completed, tmp_path) as instance:
        assert instance.report.pid > 0
        got = await outputs(instance, {**columns, "size": TABLE[["size"]].to_numpy()})
    np.testing.assert_allclose(got["predict"][:, 0], model.predict(TABLE), rtol=1e-6)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    st.lists(
        st.tuples(st.floats(-1e6, 1e6) | st.just(float("nan")), st.text(max_size=5), st.integers(-9, 20)),
        min_size=1,
        max_size=8,
    )
)
def test_any_row_has_the_answer_of_the_library(served: tuple[Any, Model], rows: list[tuple[float, str, int]]) -> None:
    model, ours = served
    table = np.array([[number, text, str(whole)] for number, text, whole in rows], dtype=object)
    got = ours.infer({
        "size": np.array([[row[0]] for row in rows]),
        "city": np.array([[row[1].encode("utf-8", "replace")] for row in rows], dtype=object),
        "month": np.array([[str(row[2]).encode()] for row in rows], dtype=object),
    })["predict_proba"]  # fmt: skip
    np.testing.assert_array_equal(got, model.predict_proba(table))


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Model]:
    model = mixed()
    return model, load(saved(model, tmp_path_factory.mktemp("mixed")))[1]


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({"size": "FP64", "city": "BYTES", "month": "FP32"}, "a category is BYTES or a whole number"),
        ({"size": "FP64", "city": "BYTES", "day": "BYTES"}, "the model's features are size, city, month"),
        ({"size": "FP64", "city": "BYTES"}, "the model takes 3 features a row, and the inputs have 2"),
    ],
)
def test_inputs_that_are_no_features_are_refused(inputs: dict[str, str], message: str, tmp_path: Path) -> None:
    specs = tuple(TensorSpec(name, datatype, (1,)) for name, datatype in inputs.items())
    with pytest.raises(ModelLoadError, match=message):
        load(saved(mixed(), tmp_path), inputs=specs)


def test_other_refusals_name_the_fault(tmp_path: Path) -> None:
    with pytest.raises(ModelLoadError, match=r"there is no model\.cbm"):
        load(tmp_path)
    saved(mixed(), tmp_path)
    with pytest.raises(ModelLoadError, match="an input of its own"):
        load(tmp_path, inputs=(TensorSpec("input", "FP64", (3,)),))
    saved(catboost.CatBoostRegressor(**SMALL).fit(X, NUMBER), tmp_path)
    with pytest.raises(ModelLoadError, match="neither categories nor texts"):
        load(tmp_path, inputs=tuple(TensorSpec(name, "BYTES", (1,)) for name in "abc"))
    with pytest.raises(ModelLoadError, match="no `predict_proba`"):
        load(tmp_path, outputs=(TensorSpec("predict_proba", "FP64", (2,)),))
    with pytest.raises(ModelLoadError, match="not for trees"):
        load(tmp_path, quantize="int8")
    for broken in (b"", b"{", b"nothing of the kind"):
        (tmp_path / "model.cbm").write_bytes(broken)
        with pytest.raises(ModelLoadError):
            load(tmp_path)
