"""Folders of MLflow and MLServer, as their documentation lays them out."""

import contextlib
import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from config.problem import ConfigError
from runtimes.tensor.configuration.model_config import DynamicBatching, TensorSpec
from runtimes.tensor.configuration.reading import Reading, read_model
from runtimes.tensor.models.repository import Repository

pytestmark = pytest.mark.plain

WINE = [{"name": "alcohol", "type": "double"}, {"name": "grapes", "type": "string"}, {"name": "year", "type": "long"}]
CLASSES = [{"type": "tensor", "tensor-spec": {"dtype": "int64", "shape": [-1]}}]
IRIS = [{"type": "tensor", "tensor-spec": {"dtype": "float64", "shape": [-1, 4]}}]


def mlflow(folder: Path, flavor: str, fields: dict[str, Any], **signature: list[dict[str, Any]]) -> Path:
    """A folder of `mlflow.….save_model`."""
    folder.mkdir(parents=True, exist_ok=True)
    function = {"loader_module": f"mlflow.{flavor}", "model_path": "model.pkl", "python_version": "3.11.7"}
    document: dict[str, Any] = {"flavors": {"python_function": function, flavor: fields}, "mlflow_version": "3.5.0"}
    if signature:
        document["signature"] = {side: json.dumps(columns) for side, columns in signature.items()}
    (folder / "MLmodel").write_text(yaml.safe_dump(document))
    return folder


def mlserver(folder: Path, **settings: Any) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "model-settings.json").write_text(json.dumps(settings))
    return folder


def reading(folder: Path) -> Reading:
    model = Repository(folder.parent).find(folder.name)
    return read_model(model.path, model.name, [model.version(number) for number in model.versions])


def refusal(folder: Path) -> str:
    with pytest.raises(ConfigError) as caught:
        reading(folder)
    return str(caught.value)


@pytest.mark.parametrize(
    ("flavor", "fields", "backend", "file", "parameters"),
    [
        ("sklearn", {"pickled_model": "model.pkl", "sklearn_version": "1.7"}, "sklearn", "model.pkl", {}),
        ("onnx", {"data": "model.onnx", "onnx_version": "1.19"}, "onnx", "model.onnx", {}),
        (
            "xgboost",
            {"data": "model.ubj", "model_class": "xgboost.sklearn.XGBClassifier"},
            "xgboost",
            "model.ubj",
            {"output_class": "true"},
        ),
        ("xgboost", {"data": "model.xgb", "model_class": "xgboost.core.Booster"}, "xgboost", "model.xgb", {}),
        ("lightgbm", {"data": "model.lgb", "model_class": "lightgbm.basic.Booster"}, "lightgbm", "model.lgb", {}),
        ("catboost", {"data": "model.cb", "model_type": "CatBoost", "save_format": "cbm"}, "catboost", "model.cb", {}),
        ("lightgbm", {"data": "model.pkl", "model_class": "lightgbm.LGBMClassifier"}, "sklearn", "model.pkl", {}),
        (
            "tensorflow",
            {"saved_model_dir": "tfmodel", "signature_def_key": "embed"},
            "tensorflow",
            "tfmodel",
            {"signature": "embed"},
        ),
    ],
)
def test_flavors_of_mlflow(
    flavor: str, fields: dict[str, Any], backend: str, file: str, parameters: dict[str, str], tmp_path: Path
) -> None:
    for folder in (tmp_path / "flat", tmp_path / "versions"):
        mlflow(folder / "1" if folder.name == "versions" else folder, flavor, fields)
        config = reading(folder).config
        assert (config.backend, config.default_model_filename, config.parameters) == (backend, file, parameters)
        assert (config.name, config.inputs, config.outputs) == (folder.name, (), ())


def test_the_signature_of_mlflow_declares_columns_or_tensors(tmp_path: Path) -> None:
    fields = {"pickled_model": "model.pkl"}
    config = reading(mlflow(tmp_path / "wine", "sklearn", fields, inputs=WINE, outputs=CLASSES)).config
    columns = {"alcohol": "FP64", "grapes": "BYTES", "year": "INT64"}
    assert config.inputs == tuple(TensorSpec(name, datatype, (1,)) for name, datatype in columns.items())
    assert config.outputs == (TensorSpec("predict", "INT64", (1,), reshape=()),)
    config = reading(mlflow(tmp_path / "iris", "sklearn", fields, inputs=IRIS)).config
    assert (config.inputs, config.outputs) == ((TensorSpec("input", "FP64", (4,)),), ())
    config = reading(mlflow(tmp_path / "net", "onnx", {"data": "model.onnx"}, inputs=IRIS, outputs=CLASSES)).config
    assert (config.inputs, config.outputs) == ((), ())  # the file has them


def test_fields_of_our_own_configuration_come_first(tmp_path: Path) -> None:
    folder = mlflow(tmp_path / "m", "sklearn", {"pickled_model": "model.pkl"}, inputs=WINE)
    (folder / "model.yaml").write_text("max_batch_size: 4\nparameters: {allow_pickle: true}\n")
    config = reading(folder).config
    assert (config.backend, config.max_batch_size, config.parameters) == ("sklearn", 4, {"allow_pickle": "true"})


@pytest.mark.parametrize(
    ("implementation", "backend", "parameters"),
    [
        ("mlserver_sklearn.SKLearnModel", "sklearn", {}),
        ("mlserver_xgboost.XGBoostModel", "xgboost", {"output_class": "auto"}),
        ("mlserver_lightgbm.LightGBMModel", "lightgbm", {}),
        ("mlserver_catboost.CatboostModel", "catboost", {}),
        ("mlserver_onnx.OnnxModel", "onnx", {}),
    ],
)
def test_settings_of_mlserver(implementation: str, backend: str, parameters: dict[str, str], tmp_path: Path) -> None:
    read = reading(
        mlserver(
            tmp_path / "m",
            name="m",
            implementation=implementation,
            parameters={"uri": "./files/model.bin", "version": "v0.1.0"},
            max_batch_size=16,
            max_batch_time=0.5,
            warm_workers=True,
        )
    )
    config = read.config
    assert (config.backend, config.default_model_filename, config.parameters) == (
        backend, "files/model.bin", parameters,
    )  # fmt: skip
    assert (config.max_batch_size, config.dynamic_batching) == (16, DynamicBatching(max_queue_delay=0.5))
    assert sorted(warning.path for warning in read.warnings) == ["version", "warm_workers"]


def test_mlserver_serves_a_folder_of_mlflow(tmp_path: Path) -> None:
    mlflow(tmp_path / "m" / "saved", "lightgbm", {"data": "model.lgb"}, inputs=IRIS)
    settings = {"implementation": "mlserver_mlflow.MLflowRuntime", "parameters": {"uri": "./saved"}}
    config = reading(mlserver(tmp_path / "m", **settings)).config
    assert (config.backend, config.default_model_filename) == ("lightgbm", "saved/model.lgb")
    assert config.inputs == (TensorSpec("input", "FP64", (4,)),)


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"implementation": "models.Custom"}, "implementation `models.Custom` is not served here"),
        ({"implementation": "mlserver_sklearn.SKLearnModel", "name": "other"}, "give the folder the model's name"),
        (
            {"implementation": "mlserver_sklearn.SKLearnModel", "parameters": {"uri": "s3://bucket/m"}},
            "put it beside model-settings.json",
        ),
        (
            {"implementation": "mlserver_sklearn.SKLearnModel", "parameters": {"uri": "../other/model.joblib"}},
            "must lie in the model's own folder",
        ),
        ({"implementation": "mlserver_onnx.OnnxModel", "max_batch_size": -1}, "`max_batch_size` is not a whole number"),
        (
            {"implementation": "mlserver_sklearn.SKLearnModel", "inputs": [{"name": "x"}]},
            "an input has no shape",
        ),
    ],
)
def test_other_implementations_are_refused(settings: dict[str, Any], reason: str, tmp_path: Path) -> None:
    assert reason in refusal(mlserver(tmp_path / "m", **settings))


@pytest.mark.parametrize(
    ("columns", "reason"),
    [
        ([{"name": "when", "type": "datetime"}], "column `when` is a datetime"),
        ([{"type": "tensor", "tensor-spec": {"dtype": "float64"}}], "has no shape"),
        ([{"type": "tensor", "tensor-spec": {"dtype": "complex64", "shape": [-1, 2]}}], "unknown dtype"),
        (["alcohol"], "has a column that is no object"),
    ],
)
def test_signatures_that_cannot_be_served_are_refused(columns: list[Any], reason: str, tmp_path: Path) -> None:
    assert reason in refusal(mlflow(tmp_path / "m", "sklearn", {}, inputs=columns))


def test_other_flavors_of_mlflow_are_named(tmp_path: Path) -> None:
    assert "flavors prophet, python_function are not served here" in refusal(mlflow(tmp_path / "m", "prophet", {}))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@pytest.mark.parametrize("place", ["m", "m/1"])
def test_pmml_is_refused_with_ways_out(place: str, tmp_path: Path) -> None:
    (tmp_path / place).mkdir(parents=True)
    (tmp_path / place / "iris.pmml").write_text("<PMML/>")
    assert "iris.pmml: is PMML, which is not served here: export the model as ONNX" in refusal(tmp_path / "m")
    (tmp_path / "m" / "model.yaml").write_text("file: iris.pmml\n")
    assert reading(tmp_path / "m").config.backend == "pmml"  # which `own_name` refuses


@given(
    document=JSON | st.fixed_dictionaries({"flavors": st.fixed_dictionaries({"sklearn": JSON}), "signature": JSON})
    | st.fixed_dictionaries({"flavors": JSON, "signature": st.fixed_dictionaries({"inputs": JSON.map(json.dumps)})})
    | st.fixed_dictionaries({"implementation": st.just("mlserver_sklearn.SKLearnModel"), "parameters": JSON,
                             "inputs": JSON, "max_batch_size": JSON, "max_batch_time": JSON}),
    name=st.sampled_from(["MLmodel", "model-settings.json"]),
)  # fmt: skip
def test_any_file_is_read_or_refused(document: Any, name: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("any") / "m"
    folder.mkdir()
    (folder / name).write_text(json.dumps(document))
    with contextlib.suppress(ConfigError):
        assert reading(folder).config.backend == "sklearn"


def test_a_configuration_that_names_a_framework_needs_no_foreign_file(tmp_path: Path) -> None:
    folder = mlflow(tmp_path / "m" / "1", "prophet", {}).parent
    (folder / "config.pbtxt").write_text('backend: "onnxruntime"\n')
    config = reading(folder).config
    assert (config.backend, config.default_model_filename) == ("onnx", "")


def test_the_newest_version_describes_the_model(tmp_path: Path) -> None:
    for number, file in enumerate(["old.lgb", "new.lgb"], 1):
        mlflow(tmp_path / "m" / str(number), "lightgbm", {"data": file})
    assert reading(tmp_path / "m").config.default_model_filename == "new.lgb"


@pytest.mark.parametrize("file", ["../outside.pkl", "/etc/passwd", "a/../../x", "..", "s3://bucket/x"])
@pytest.mark.parametrize("flavor", ["sklearn", "onnx", "xgboost", "lightgbm", "catboost", "tensorflow"])
def test_no_file_outside_of_the_folder_is_opened(flavor: str, file: str, tmp_path: Path) -> None:
    fields = {"pickled_model": file, "data": file, "saved_model_dir": file}
    assert re.search("own folder|put it beside MLmodel", refusal(mlflow(tmp_path / "m", flavor, fields)))


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (
            "MLmodel",
            'flavors: {sklearn: {}}\nsignature: {inputs: \'[{"type": "tensor", "tensor-spec": {"shape": [1]}}]\'}',
        ),
        ("MLmodel", 'flavors: {sklearn: {}}\nsignature: {inputs: \'[{"name": "a", "type": ["x"]}]\'}'),
        ("MLmodel", "flavors: {1: {}, 2: {}}"),
        ("MLmodel", "a: &a [x, x]\nflavors: {onnx: {data: [*a, *a]}}"),
        ("model-settings.json", '{"implementation": "mlserver_sklearn.SKLearnModel", "inputs": 5}'),
        (
            "model-settings.json",
            '{"implementation": "mlserver_sklearn.SKLearnModel", "parameters": {"uri": "a\\u0000"}}',
        ),
    ],
)
def test_malformed_files_are_refused(name: str, text: str, tmp_path: Path) -> None:
    (tmp_path / "m").mkdir()
    (tmp_path / "m" / name).write_text(text)
    assert name in refusal(tmp_path / "m")
