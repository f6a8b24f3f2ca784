"""Models of tabular data, of scikit-learn, XGBoost and LightGBM, each trained here."""

import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import joblib
import lightgbm
import numpy as np
import pandas
import pytest
import xgboost
from sklearn.compose import ColumnTransformer
from sklearn.datasets import load_iris
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.multioutput import MultiOutputClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.tree import DecisionTreeRegressor

from loadtests.venvs import InstallError, ensure
from runtimes.tensor.backends.registry import backend, complete_config, load_model
from runtimes.tensor.configuration.model_config import DynamicBatching, ModelConfig, TensorSpec
from runtimes.tensor.instances import placement
from runtimes.tensor.interfaces import Device, Model, ModelLoadError
from tests.runtimes.tensor import loaded
from tests.runtimes.tensor.instances.support import outputs, running
from tests.support.absent import absent

X, Y = load_iris(return_X_y=True)
TRUSTED = {"allow_pickle": "true"}


def config(kind: str, **more: Any) -> ModelConfig:
    return ModelConfig("model", kind, **more)


def load(config: ModelConfig, folder: Path) -> tuple[ModelConfig, Model]:
    kind = backend(config.backend)
    config = complete_config(kind, config, folder)
    return config, load_model(kind, config, folder, Device(threads=1)).model


def saved(model: Any, folder: Path) -> Path:
    joblib.dump(model, folder / "model.joblib")
    return folder


@pytest.mark.processes
async def test_a_classifier_is_served_whole_in_a_process(tmp_path: Path) -> None:
    model = make_pipeline(StandardScaler(), LogisticRegression()).fit(X, Y)
    completed = await placement.complete(config("sklearn", parameters=TRUSTED), saved(model, tmp_path))
    assert completed.inputs == (TensorSpec("input", "FP64", (4,)),)
    assert completed.outputs == (
        TensorSpec("predict", "INT64", (1,), reshape=()),
        TensorSpec("predict_proba", "FP64", (3,)),
    )
    assert completed.max_batch_size == 256
    assert completed.dynamic_batching == DynamicBatching()
    async with running(completed, tmp_path) as instance:
        assert instance.report.pid > 0
        got = await outputs(instance, {"input": X[:50]}, {"input": X[50:]})
        np.testing.assert_array_equal(got["predict"][:, 0], model.predict(X))
        np.testing.assert_allclose(got["predict_proba"], model.predict_proba(X))


def test_answers_take_the_datatype_and_shape_that_is_written(tmp_path: Path) -> None:
    model = LogisticRegression(max_iter=500).fit(X, np.array(["setosa", "versicolor", "virginica"])[Y])
    written = config(
        "sklearn",
        inputs=(TensorSpec("x", "FP32", (4,)),),
        outputs=(TensorSpec("predict", "BYTES", (1,)), TensorSpec("decision_function", "FP32", (3,))),
        parameters=TRUSTED,
    )
    _, served = load(written, saved(model, tmp_path))
    got = served.infer({"x": X[:2].astype(np.float32)})
    assert got["predict"].tolist() == [["setosa"], ["setosa"]]
    assert got["decision_function"].dtype == np.float32


def test_features_of_their_own_are_joined_texts_too(tmp_path: Path) -> None:
    rows = np.array([["a", 1], ["b", 2], ["a", 3]], dtype=object)
    model = make_pipeline(OneHotEncoder(handle_unknown="ignore"), LogisticRegression()).fit(rows, [0, 1, 0])
    written = config(
        "sklearn",
        inputs=(TensorSpec("letter", "BYTES", (1,)), TensorSpec("number", "INT64", (1,))),
        outputs=(TensorSpec("class", "INT64", (1,)),),
        max_batch_size=8,
        parameters=TRUSTED,
    )
    _, served = load(written, saved(model, tmp_path))
    letters = np.array([[b"a"], [b"b"]], dtype=object)
    assert served.infer({"letter": letters, "number": np.array([[1], [2]])})["class"].tolist() == [[0], [1]]


def test_a_regressor_and_a_transformer(tmp_path: Path) -> None:
    tree = DecisionTreeRegressor().fit(X[:, :3], X[:, 3])
    completed, served = load(config("sklearn", parameters=TRUSTED), saved(tree, tmp_path))
    assert [spec.name for spec in completed.outputs] == ["predict"]
    np.testing.assert_allclose(served.infer({"input": X[:, :3]})["predict"], tree.predict(X[:, :3]))
    completed, served = load(config("sklearn", parameters=TRUSTED), saved(StandardScaler().fit(X), tmp_path))
    assert completed.outputs == (TensorSpec("transform", "FP64", (4,)),)


def test_files_that_run_code_must_be_allowed(tmp_path: Path) -> None:
    saved(LogisticRegression().fit(X, Y > 1), tmp_path)
    with pytest.raises(ModelLoadError, match=r"model\.joblib runs code when it is read: save the model with skops"):
        load(config("sklearn"), tmp_path)


def test_skops_holds_data_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    (tmp_path / "model.skops").write_bytes(b"")
    monkeypatch.setitem(sys.modules, "skops", None)
    with pytest.raises(ModelLoadError, match="needs skops, which is not installed: run `pip install"):
        load(config("sklearn"), tmp_path)


SAVE = """
import shlex, sys
from sklearn.datasets import load_iris
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from skops import io
model = LogisticRegression(max_iter=500).fit(*load_iris(return_X_y=True))
io.dump(model, sys.argv[1] + "/model.skops")
io.dump(FunctionTransformer(shlex.quote), sys.argv[2] + "/model.skops")
"""


@pytest.fixture(scope="module")
def skops() -> str:
    """The interpreter of an environment that has skops."""
    try:
        requirements = ["skops==0.14.0", "scikit-learn==1.9.1", "numpy==2.4.6", "msgspec==0.22.0"]
        return str(ensure("skops", requirements) / "bin/python")
    except InstallError as error:
        absent(f"a real skops: {error}")


@pytest.fixture(scope="module")
def skops_files(skops: str, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    fine, strange = tmp_path_factory.mktemp("fine"), tmp_path_factory.mktemp("strange")
    subprocess.run([skops, "-c", SAVE, str(fine), str(strange)], check=True, timeout=300)
    return fine, strange


@pytest.mark.processes
@pytest.mark.timeout(1800)  # the first run installs it
async def test_skops_files_are_read_and_their_forbidden_types_are_named(
    skops: str, skops_files: tuple[Path, Path]
) -> None:
    fine, strange = skops_files
    completed = await placement.complete(config("sklearn", parameters={"interpreter": skops}), fine)
    async with running(completed, fine) as instance:
        got = await outputs(instance, {"input": X})
        assert np.mean(got["predict"][:, 0] == Y) > 0.9
    with pytest.raises(ModelLoadError, match=r"not on the list of safe types: name .* `trusted`: shlex\.quote"):
        await placement.complete(config("sklearn", parameters={"interpreter": skops}), strange)
    trusting = {"interpreter": skops, "trusted": "shlex.quote"}
    with pytest.raises(ModelLoadError, match="does not have its number of features"):
        await placement.complete(config("sklearn", parameters=trusting), strange)


def test_a_method_that_a_model_lacks_and_features_that_do_not_fit(tmp_path: Path) -> None:
    saved(DecisionTreeRegressor().fit(X, Y), tmp_path)
    outputs = (TensorSpec("predict_proba", "FP64", (3,)),)
    with pytest.raises(ModelLoadError, match="a DecisionTreeRegressor has no `predict_proba`: it has predict"):
        load(config("sklearn", outputs=outputs, parameters=TRUSTED), tmp_path)
    inputs = (TensorSpec("x", "FP64", (5,)),)
    with pytest.raises(ModelLoadError, match="takes 4 features a row, and the inputs have 5"):
        load(config("sklearn", inputs=inputs, parameters=TRUSTED), tmp_path)


@pytest.mark.parametrize("name", ["model.json", "model.ubj"])
async def test_xgboost_in_its_own_formats(tmp_path: Path, name: str) -> None:
    data = xgboost.DMatrix(X, Y)
    model = xgboost.train({"objective": "multi:softprob", "num_class": 3, "nthread": 1}, data, 5)
    model.save_model(tmp_path / name)
    completed = await placement.complete(config("xgboost"), tmp_path)
    assert completed.inputs == (TensorSpec("input", "FP32", (4,)),)
    assert completed.outputs == (TensorSpec("predict", "FP32", (3,)),)
    async with running(completed, tmp_path) as instance:
        got = await outputs(instance, {"input": X[:50].astype(np.float32)}, {"input": X[50:].astype(np.float32)})
        np.testing.assert_allclose(got["predict"], model.predict(data), rtol=1e-5)


async def test_lightgbm_in_its_own_format(tmp_path: Path) -> None:
    model = lightgbm.train({"objective": "regression", "verbose": -1, "num_threads": 1}, lightgbm.Dataset(X, Y), 5)
    model.save_model(tmp_path / "model.txt")
    completed = await placement.complete(config("lightgbm"), tmp_path)
    assert completed.inputs == (TensorSpec("input", "FP64", (4,)),)
    assert completed.outputs == (TensorSpec("predict", "FP64", (1,), reshape=()),)
    async with running(completed, tmp_path) as instance:
        got = await outputs(instance, {"input": X})
        np.testing.assert_allclose(got["predict"][:, 0], model.predict(X), rtol=1e-6)


def test_margins_are_returned_on_demand(tmp_path: Path) -> None:
    two = Y > 0
    params = {"objective": "binary:logistic", "nthread": 1}
    xgboost.train(params, xgboost.DMatrix(X, two), 3).save_model(tmp_path / "model.ubj")
    trained = lightgbm.train({"objective": "binary", "verbose": -1, "num_threads": 1}, lightgbm.Dataset(X, two), 3)
    trained.save_model(tmp_path / "model.txt")
    for kind in ("xgboost", "lightgbm"):
        _, values = load(config(kind), tmp_path)
        _, margins = load(config(kind, parameters={"predict_type": "margin"}), tmp_path)
        margin = margins.infer({"input": X.astype(np.float32)})["predict"]
        value = values.infer({"input": X.astype(np.float32)})["predict"]
        np.testing.assert_allclose(1 / (1 + np.exp(-margin)), value, rtol=1e-5)
        with pytest.raises(ModelLoadError, match="`predict_type` is value or margin, not `odds`"):
            load(config(kind, parameters={"predict_type": "odds"}), tmp_path)
        with pytest.raises(ModelLoadError, match="not for trees"):
            load(config(kind, quantize="int8"), tmp_path)


@pytest.mark.parametrize("kind", ["xgboost", "lightgbm", "sklearn"])
def test_a_file_that_is_broken_or_missing(tmp_path: Path, kind: str) -> None:
    with pytest.raises(ModelLoadError, match="there is no model"):
        load(config(kind, parameters=TRUSTED), tmp_path)
    for name in ("model.ubj", "model.txt", "model.joblib"):
        (tmp_path / name).write_bytes(b"nothing of the kind")
    with pytest.raises(ModelLoadError):
        load(config(kind, parameters=TRUSTED), tmp_path)


# ── answers of the model's own library, whatever the order and the form of the inputs ─────────────────────────


def frame(**columns: Any) -> Any:
    return pandas.DataFrame(columns)


def specs(datatypes: dict[str, str]) -> tuple[TensorSpec, ...]:
    return tuple(TensorSpec(name, datatype, (1,)) for name, datatype in datatypes.items())


@pytest.mark.parametrize("order", [("age", "city"), ("city", "age")])
def test_a_model_of_named_columns_gets_them_by_name(order: tuple[str, str], tmp_path: Path) -> None:
    rows = frame(age=[70.0, 20.0, 40.0, 30.0], city=["Rome", "Lima", "Rome", "Lima"])
    columns = ColumnTransformer([("city", OneHotEncoder(), ["city"]), ("age", StandardScaler(), ["age"])])
    model = make_pipeline(columns, LogisticRegression()).fit(rows, [1, 0, 1, 0])
    datatypes = {"age": "FP64", "city": "BYTES"}
    outputs = (TensorSpec("predict_proba", "FP64", (2,)),)
    written = config("sklearn", inputs=specs({name: datatypes[name] for name in order}), outputs=outputs)
    _, served = load(replace(written, parameters=TRUSTED), saved(model, tmp_path))
    cities = np.array([[b"Lima"], [b"Rome"]], dtype=object)
    got = served.infer({"city": cities, "age": np.array([[60.0], [21.0]])})
    np.testing.assert_allclose(
        got["predict_proba"], model.predict_proba(frame(age=[60.0, 21.0], city=["Lima", "Rome"]))
    )


@pytest.mark.parametrize("kind", ["sklearn", "xgboost", "lightgbm"])
def test_numbers_that_have_the_names_of_features_are_joined_by_name(kind: str, tmp_path: Path) -> None:
    names = ["a", "b", "c", "d"]
    rows = pandas.DataFrame(X, columns=names)
    output: tuple[TensorSpec, ...] = (TensorSpec("predict", "FP32", (1,), reshape=()),)
    if kind == "sklearn":
        model: Any = DecisionTreeRegressor(random_state=0).fit(rows, X @ [1, 2, 3, 4])
        saved(model, tmp_path)
    elif kind == "xgboost":
        model = xgboost.XGBRegressor(n_estimators=5).fit(rows, X @ [1, 2, 3, 4])
        model.save_model(tmp_path / "model.ubj")
    else:
        model = lightgbm.LGBMRegressor(n_estimators=5, verbose=-1).fit(rows, X @ [1, 2, 3, 4])
        model.booster_.save_model(tmp_path / "model.txt")
    written = config(kind, inputs=specs(dict.fromkeys(reversed(names), "FP64")), outputs=output, parameters=TRUSTED)
    _, served = load(written, tmp_path)
    got = served.infer({name: X[:9, i : i + 1] for i, name in enumerate(names)})
    np.testing.assert_allclose(got["predict"], model.predict(rows[:9]), rtol=1e-5)
    with pytest.raises(ModelLoadError, match="the model's features are a, b, c, d, and the inputs are a, b, c, x"):
        load(replace(written, inputs=specs(dict.fromkeys(["a", "b", "c", "x"], "FP64"))), tmp_path)


def test_an_optional_input_that_is_absent_is_a_missing_value(tmp_path: Path) -> None:
    holes = np.where(X[:, 2:] > 4.0, np.nan, X[:, 2:])
    booster = lightgbm.train({"verbose": -1}, lightgbm.Dataset(np.hstack([X[:, :2], holes]), Y), 5)
    booster.save_model(tmp_path / "model.txt")
    inputs = (TensorSpec("a", "FP64", (2,)), TensorSpec("b", "FP64", (2,), optional=True))
    _, model = load(config("lightgbm", inputs=inputs), tmp_path)
    absent = booster.predict(np.hstack([X[:, :2], np.full((len(X), 2), np.nan)]))
    np.testing.assert_allclose(model.infer({"a": X[:, :2]})["predict"].ravel(), absent)
    there = model.infer({"a": X[:, :2], "b": X[:, 2:]})["predict"].ravel()
    np.testing.assert_allclose(there, booster.predict(X))
    assert not np.allclose(there, absent)


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ([("a", "FP64", (3,)), ("b", "INT64", (1,))], "INT64 has no missing value"),
        ([("a", "FP64", (3,)), ("b", "FP64", (-1,))], "any number of features"),
        ([("b", "FP64", (4,))], "all inputs are optional"),
    ],
)
def test_an_optional_input_without_a_missing_value_is_refused(
    inputs: list[tuple[str, str, tuple[int, ...]]], message: str, tmp_path: Path
) -> None:
    lightgbm.train({"verbose": -1}, lightgbm.Dataset(X, Y), 2).save_model(tmp_path / "model.txt")
    specs = tuple(TensorSpec(name, datatype, dims, optional=name == "b") for name, datatype, dims in inputs)
    with pytest.raises(ModelLoadError, match=message):
        load(config("lightgbm", inputs=specs), tmp_path)


def test_names_with_spaces_are_those_of_lightgbm_with_lines(tmp_path: Path) -> None:
    names = ["hours per week", "age", "income", "city code"]
    model = lightgbm.LGBMRegressor(n_estimators=5, verbose=-1).fit(pandas.DataFrame(X, columns=names), X @ [1, 2, 3, 4])
    model.booster_.save_model(tmp_path / "model.txt")
    written = config("lightgbm", inputs=specs(dict.fromkeys(reversed(names), "FP64")))
    _, served = load(written, tmp_path)
    got = served.infer({name: X[:9, i : i + 1] for i, name in enumerate(names)})
    np.testing.assert_allclose(got["predict"].ravel(), model.predict(pandas.DataFrame(X[:9], columns=names)))


def test_several_targets_and_sparse_answers_are_tensors(tmp_path: Path) -> None:
    targets = np.stack([Y == 0, Y == 1], axis=1).astype(int)
    model = MultiOutputClassifier(LogisticRegression(max_iter=500)).fit(X, targets)
    completed, served = load(config("sklearn", parameters=TRUSTED), saved(model, tmp_path))
    assert [(spec.name, spec.dims) for spec in completed.outputs] == [("predict", (2,)), ("predict_proba", (2, 2))]
    got = served.infer({"input": X[:5]})
    np.testing.assert_array_equal(got["predict"], model.predict(X[:5]))
    np.testing.assert_allclose(got["predict_proba"], np.stack(model.predict_proba(X[:5]), axis=1))
    encoder = OneHotEncoder().fit([[0, 0], [1, 2], [2, 1]])
    completed, served = load(config("sklearn", parameters=TRUSTED), saved(encoder, tmp_path))
    assert completed.outputs == (TensorSpec("transform", "FP64", (6,)),)
    np.testing.assert_array_equal(
        served.infer({"input": np.array([[1.0, 2.0]])})["transform"], encoder.transform([[1, 2]]).toarray()
    )


def test_targets_with_different_classes_have_no_probabilities(tmp_path: Path) -> None:
    model = MultiOutputClassifier(LogisticRegression(max_iter=500)).fit(X, np.stack([Y, Y == 1], axis=1).astype(int))
    completed, _ = load(config("sklearn", parameters=TRUSTED), saved(model, tmp_path))
    assert [spec.name for spec in completed.outputs] == ["predict"]


@pytest.mark.parametrize("reshape", [None, ()])
def test_a_pipeline_of_texts(reshape: tuple[int, ...] | None, tmp_path: Path) -> None:
    model = make_pipeline(TfidfVectorizer(), LogisticRegression()).fit(["win pills", "see you"], ["spam", "ham"])
    inputs = (TensorSpec("text", "BYTES", (1,), reshape=reshape),)
    written = config("sklearn", inputs=inputs, outputs=(TensorSpec("predict", "BYTES", (1,)),), parameters=TRUSTED)
    _, served = load(written, saved(model, tmp_path))
    texts = np.array([b"win pills", b"see you"], dtype=object)
    got = served.infer({"text": texts if reshape == () else texts[:, None]})
    assert got["predict"].ravel().tolist() == ["spam", "ham"]


def test_the_error_of_a_model_that_refuses_zeros_names_the_outputs(tmp_path: Path) -> None:
    model = make_pipeline(OneHotEncoder(), LogisticRegression()).fit([[1, 5], [2, 6]], [0, 1])
    with pytest.raises(ModelLoadError, match="write the outputs in the configuration"):
        load(config("sklearn", parameters=TRUSTED), saved(model, tmp_path))


def test_a_size_of_zero_makes_the_rows_a_dimension_of_the_request(tmp_path: Path) -> None:
    model = LogisticRegression(max_iter=500).fit(X, Y)
    completed, served = load(config("sklearn", parameters=TRUSTED, batch="written"), saved(model, tmp_path))
    assert (completed.max_batch_size, completed.inputs[0].dims) == (0, (-1, 4))
    assert [spec.dims for spec in completed.outputs] == [(-1,), (-1, 3)]
    np.testing.assert_array_equal(served.infer({"input": X[:7]})["predict"], model.predict(X[:7]))


def test_xgboost_answers_with_its_best_rounds_as_its_classifier_does(tmp_path: Path) -> None:
    rows, labels = X[Y < 2] + np.random.default_rng(3).normal(size=(100, 4)) * 3, Y[Y < 2]
    model = xgboost.XGBClassifier(n_estimators=40, learning_rate=1.0, early_stopping_rounds=3)
    model.fit(rows[:60:2], labels[:60:2], eval_set=[(rows[1::2], labels[1::2])], verbose=False)
    model.save_model(tmp_path / "model.ubj")
    table = rows.astype(np.float32)
    assert 0 <= model.best_iteration < model.get_booster().num_boosted_rounds() - 1
    _, served = load(config("xgboost"), tmp_path)
    np.testing.assert_allclose(served.infer({"input": table})["predict"].ravel(), model.predict_proba(rows)[:, 1])
    _, served = load(config("xgboost", parameters={"rounds": "all"}), tmp_path)
    plain = model.get_booster().inplace_predict(table)
    np.testing.assert_allclose(served.infer({"input": table})["predict"].ravel(), plain)


def test_linear_boosters_answer(tmp_path: Path) -> None:
    booster = xgboost.train({"booster": "gblinear"}, xgboost.DMatrix(X, Y), 5)
    booster.save_model(tmp_path / "model.json")
    _, served = load(config("xgboost"), tmp_path)
    got = served.infer({"input": X[:9].astype(np.float32)})["predict"].ravel()
    np.testing.assert_allclose(got, booster.predict(xgboost.DMatrix(X[:9])), rtol=1e-6)


@pytest.mark.parametrize("kind", ["xgboost", "lightgbm"])
@pytest.mark.parametrize("classes", [2, 3])
def test_parameters_of_fil_select_the_answer(kind: str, classes: int, tmp_path: Path) -> None:
    rows, labels = X[classes > Y], Y[classes > Y]
    if kind == "xgboost":
        model: Any = xgboost.XGBClassifier(n_estimators=3, max_depth=2, learning_rate=0.1).fit(rows, labels)
        model.save_model(tmp_path / "model.ubj")
    else:
        model = lightgbm.LGBMClassifier(n_estimators=3, max_depth=2, verbose=-1).fit(rows, labels)
        model.booster_.save_model(tmp_path / "model.txt")
    right = model.predict_proba(rows)

    def answers(**parameters: str) -> Any:
        completed, served = load(config(kind, parameters=parameters), tmp_path)
        got = served.infer({"input": rows.astype(np.float32 if kind == "xgboost" else np.float64)})["predict"]
        assert got.shape[1:] == completed.outputs[0].dims or completed.outputs[0].reshape == ()
        return got

    np.testing.assert_allclose(answers(predict_proba="true", output_class="true"), right, rtol=1e-5)
    np.testing.assert_array_equal(answers(output_class="true").ravel(), model.predict(rows))
    if classes == 2:
        highest = str(float(right[:, 1].max()) + 0.01)
        np.testing.assert_array_equal(answers(output_class="true", threshold=highest).ravel(), np.zeros(len(rows)))


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"output_class": "perhaps"}, "`output_class` is true or false, not `perhaps`"),
        ({"threshold": "high"}, "`threshold` is a number, not `high`"),
        ({"predict_type": "margin", "output_class": "true"}, "give one of them"),
    ],
)
def test_parameters_of_trees_without_a_meaning_are_refused(
    parameters: dict[str, str], message: str, tmp_path: Path
) -> None:
    xgboost.train({}, xgboost.DMatrix(X, Y), 1).save_model(tmp_path / "model.ubj")
    with pytest.raises(ModelLoadError, match=message):
        load(config("xgboost", parameters=parameters), tmp_path)


def test_trees_take_no_texts(tmp_path: Path) -> None:
    xgboost.train({}, xgboost.DMatrix(X, Y), 1).save_model(tmp_path / "model.ubj")
    with pytest.raises(ModelLoadError, match="`city` is BYTES"):
        load(config("xgboost", inputs=(TensorSpec("city", "BYTES", (4,)),)), tmp_path)


COUNTING = """
import numpy as np

class Counting:
    n_features_in_ = 2

    def __init__(self):
        self.calls = 0

    def predict(self, table):
        return table.sum(axis=1)

    def transform(self, table):
        self.calls += 1
        return np.full((len(table), 1), float(self.calls))
"""


@pytest.mark.processes
@pytest.mark.parametrize("place", ["process", "thread"])
async def test_only_the_methods_of_requested_outputs_are_called(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "counts" / "1"
    folder.mkdir(parents=True)
    module = f"counting_{place}"
    (folder / f"{module}.py").write_text(COUNTING)
    (folder / "model.joblib").write_bytes(b"c%b\nCounting\n)R." % module.encode())
    specs = (TensorSpec("predict", "FP64", (1,), reshape=()), TensorSpec("transform", "FP64", (1,)))
    (folder.parent / "model.yaml").write_text(
        "parameters: {allow_pickle: true}\nmax_batch_size: 8\ndynamic_batching: {}\n"
        f"instances: [{{placement: {place}}}]\ninputs: [{{name: input, datatype: FP64, dims: [2]}}]\n"
        "outputs: [{name: predict, datatype: FP64, dims: [1], reshape: []},"
        " {name: transform, datatype: FP64, dims: [1]}]\n"
    )
    monkeypatch.syspath_prepend(str(folder))
    served = await loaded.load(folder.parent)
    assert served.config.outputs == specs
    row = {"input": np.array([[1.0, 2.0]])}

    async def outcome(*requests: tuple[str, ...]) -> list[dict[str, Any]]:
        return await loaded.answers(served, [row] * len(requests), selected=list(requests))

    for _ in range(2):
        assert await outcome(("predict",), ("predict",)) == [{"predict": 3.0}] * 2
    assert await outcome(("transform", "predict")) == [{"transform": 1.0, "predict": 3.0}]
    assert await outcome(("predict",), ("transform",)) == [{"predict": 3.0}, {"transform": 2.0}]
    assert await outcome((), ("predict",)) == [{"predict": 3.0, "transform": 3.0}, {"predict": 3.0}]
    await loaded.end(served)
