"""Models in folders of other projects: MLflow's (`MLmodel`), MLServer's (`model-settings.json`), and KServe's, which
have only the model's file, with any name.

Their files tell the framework, the model's file and its tensors. A configuration of ours beside them says more, and
replaces what it names. A model is in the folder itself or in that of a version.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, NamedTuple

import yaml

from runtimes.tensor.configuration import foreign_pipelines, hugging_face
from runtimes.tensor.configuration.foreign_files import local, mapping, part, refused, text, whole
from runtimes.tensor.configuration.model_config import (
    PMML_ADVICE,
    DynamicBatching,
    ModelConfig,
    TensorSpec,
    VersionPolicy,
)

MLFLOW: Final = "MLmodel"
MLSERVER: Final = "model-settings.json"
MARKERS: Final = (MLFLOW, MLSERVER)
MODEL_SUFFIXES: Final = (".joblib", ".pkl", ".pickle", ".bst", ".ubj", ".cbm", ".onnx", ".pmml")
"""Files that are a model on their own, in the model's folder itself."""
_COLUMNS: Final = {
    "boolean": "BOOL", "integer": "INT32", "long": "INT64", "float": "FP32", "double": "FP64", "string": "BYTES",
    "binary": "BYTES",
}  # fmt: skip
"""Datatypes by the types of columns of MLflow's signatures."""
_TENSORS: Final = {
    "bool": "BOOL", "uint8": "UINT8", "uint16": "UINT16", "uint32": "UINT32", "uint64": "UINT64", "int8": "INT8",
    "int16": "INT16", "int32": "INT32", "int64": "INT64", "float16": "FP16", "float32": "FP32", "float64": "FP64",
    "str": "BYTES", "bytes": "BYTES", "object": "BYTES",
}  # fmt: skip
"""Datatypes by numpy's names, in signatures of tensors."""
_RUNTIMES: Final = {
    "mlserver_sklearn.SKLearnModel": "sklearn",
    "mlserver_xgboost.XGBoostModel": "xgboost",
    "mlserver_lightgbm.LightGBMModel": "lightgbm",
    "mlserver_catboost.CatboostModel": "catboost",
    "mlserver_onnx.OnnxModel": "onnx",
    "mlserver_mlflow.MLflowRuntime": MLFLOW,
    "mlserver_huggingface.HuggingFaceRuntime": hugging_face.BACKEND,
}
"""Backends by MLServer's implementations."""
_OF_RUNTIME: Final = frozenset({"name", "implementation", "parameters", "inputs", "outputs", "versions", "platform"})
_OF_SUFFIX: Final = {
    ".joblib": "sklearn", ".pkl": "sklearn", ".pickle": "sklearn", ".bst": "booster", ".json": "booster",
    ".ubj": "xgboost", ".cbm": "catboost", ".onnx": "onnx", ".pmml": "pmml",
}  # fmt: skip
"""Backends by the suffixes of KServe's servers. A "booster" is XGBoost's or LightGBM's, by its content."""
_ROWS: Final = ("sklearn", "xgboost", "lightgbm", "catboost")


class Described(NamedTuple):
    """What the files of a folder tell, and what they tell in vain."""

    config: ModelConfig
    unused: tuple[str, ...] = ()


def described(config: ModelConfig, version_folders: Sequence[Path]) -> Described:
    """A configuration with what is in the foreign files of the newest version, unless it names a framework itself.

    Blocks for the disk. Raises ConfigError.
    """
    if config.backend or config.platform or config.ensemble is not None:
        return Described(config)
    for place in reversed(version_folders):
        for marker in MARKERS:
            if (place / marker).is_file():
                return _described(place / marker, config)
        if not config.default_model_filename and hugging_face.is_folder(place):
            return Described(replace(config, backend=hugging_face.BACKEND))
    return Described(config)


def _described(path: Path, config: ModelConfig) -> Described:
    try:
        made = _of_mlserver(path, config.name) if path.name == MLSERVER else Described(mlflow_config(path, config.name))
    except (KeyError, TypeError, ValueError, AttributeError):
        raise refused(path, "is malformed") from None
    return made._replace(config=over(made.config, config))


def mlflow_config(path: Path, name: str, below: str = "") -> ModelConfig:
    """The configuration of an `MLmodel` file. `below` is its folder, from the folder of the version.

    Blocks for the disk. Raises ConfigError.
    """
    try:
        return _of_mlflow(path, below, name)
    except (KeyError, TypeError, ValueError, AttributeError):
        raise refused(path, "is malformed") from None


def over(read: ModelConfig, written: ModelConfig) -> ModelConfig:
    """A foreign configuration under one of ours."""
    return replace(
        written,
        backend=written.backend or read.backend,
        default_model_filename=written.default_model_filename or read.default_model_filename,
        inputs=written.inputs or read.inputs,
        outputs=written.outputs or read.outputs,
        max_batch_size=written.max_batch_size or (0 if written.batch == "written" else read.max_batch_size),
        dynamic_batching=written.dynamic_batching or read.dynamic_batching,
        version_policy=read.version_policy if written.version_policy == VersionPolicy() else written.version_policy,
        version_labels={**read.version_labels, **written.version_labels},
        parameters={**read.parameters, **written.parameters},
        batch=written.batch or ("" if written.max_batch_size else read.batch),
    )


# ── KServe ────────────────────────────────────────────────────────────────────────────────────────────


def kserve_file(folder: Path) -> tuple[str, str]:
    """The file of a model as KServe's servers expect it, of any name, and its backend; empty without one.

    Blocks for the disk. Raises ConfigError for several files, and for a kind that is not served.
    """
    try:
        with os.scandir(folder) as entries:
            names = sorted(entry.name for entry in entries if not entry.name.startswith(".") and entry.is_file())
        files = {name: backend for name in names if (backend := _kserve_backend(folder / name))}
    except OSError as error:
        raise refused(folder, f"cannot be read: {error.strerror}") from None
    if not files:
        return "", ""
    if len(files) > 1:
        raise refused(folder, f"has {', '.join(files)}: keep one of them, or name it in the configuration")
    ((name, backend),) = files.items()
    if backend == "pmml":
        raise refused(folder / name, f"is PMML, which is not served here: {PMML_ADVICE}")
    return name, backend


def _kserve_backend(path: Path) -> str:
    if (backend := _OF_SUFFIX.get(path.suffix, "")) != "booster":
        return backend
    with path.open("rb") as file:
        beginning = file.read(64)
    if beginning.startswith(b"tree\n"):
        return "lightgbm"
    is_json = path.suffix == ".json"
    return "" if is_json and not beginning.lstrip().startswith(b'{"learner"') else "xgboost"


# ── MLflow ────────────────────────────────────────────────────────────────────────────────────────────


def _of_mlflow(path: Path, below: str, name: str) -> ModelConfig:
    """The configuration of an `MLmodel` file. `below` is its folder, from the folder of the version."""
    written = mapping(path, yaml.safe_load)
    flavors = part(path, written, "flavors")
    for flavor, read in _FLAVORS.items():
        if isinstance(fields := flavors.get(flavor), Mapping):
            config = read(path, fields, ModelConfig(name, ""))
            file = f"{below}{local(path, config.default_model_filename)}"
            signature = part(path, written, "signature")
            inputs = tuple(_specs(path, signature.get("inputs"), "input"))
            outputs = tuple(_specs(path, signature.get("outputs"), "predict"))
            is_table = config.backend in _ROWS  # the tensors of the others are in their files
            return replace(
                config,
                default_model_filename=file,
                inputs=inputs if is_table else (),
                outputs=outputs if is_table and inputs and len(outputs) == 1 else (),
            )
    raise refused(path, f"flavors {', '.join(map(str, flavors))} are not served here: these are: {', '.join(_FLAVORS)}")


def _sklearn(path: Path, fields: Mapping[str, Any], config: ModelConfig) -> ModelConfig:
    return replace(config, backend="sklearn", default_model_filename=text(path, fields, "pickled_model", "model.pkl"))


def _xgboost(path: Path, fields: Mapping[str, Any], config: ModelConfig) -> ModelConfig:
    kind = text(path, fields, "model_class", "")
    parameters = {"output_class": "true"} if kind.endswith("Classifier") else {}
    file = text(path, fields, "data", "model.xgb")
    return replace(config, backend="xgboost", default_model_filename=file, parameters=parameters)


def _lightgbm(path: Path, fields: Mapping[str, Any], config: ModelConfig) -> ModelConfig:
    """A Booster is text; a model with scikit-learn's methods is a pickle."""
    file = text(path, fields, "data", "model.lgb")
    backend = "sklearn" if file.endswith(".pkl") else "lightgbm"
    return replace(config, backend=backend, default_model_filename=file)


def _catboost(path: Path, fields: Mapping[str, Any], config: ModelConfig) -> ModelConfig:
    """MLflow writes CatBoost's other formats too, of which only these are read."""
    if (form := text(path, fields, "save_format", "cbm")) not in ("cbm", "json"):
        raise refused(path, f"its `save_format` is {form}: save the model as cbm")
    return replace(config, backend="catboost", default_model_filename=text(path, fields, "data", "model.cb"))


def _onnx(path: Path, fields: Mapping[str, Any], config: ModelConfig) -> ModelConfig:
    return replace(config, backend="onnx", default_model_filename=text(path, fields, "data", "model.onnx"))


def _tensorflow(path: Path, fields: Mapping[str, Any], config: ModelConfig) -> ModelConfig:
    folder = fields.get("saved_model_dir")
    if not isinstance(folder, str):
        raise refused(path, "the flavor tensorflow has no `saved_model_dir`: export the model as a SavedModel")
    signature = text(path, fields, "signature_def_key", "")
    parameters = {"signature": signature} if signature else {}
    return replace(config, backend="tensorflow", default_model_filename=folder, parameters=parameters)


_FLAVORS: Final = {
    "transformers": foreign_pipelines.of_mlflow,
    "onnx": _onnx,
    "xgboost": _xgboost,
    "lightgbm": _lightgbm,
    "catboost": _catboost,
    "sklearn": _sklearn,
    "tensorflow": _tensorflow,
}


def _specs(path: Path, written: object, name: str) -> Iterator[TensorSpec]:
    """The tensors of one side of a signature: columns by name, or tensors. None if columns have no names."""
    if written is None:
        return
    try:
        fields = json.loads(str(written))
    except ValueError:
        raise refused(path, "its signature is not valid JSON") from None
    columns = fields if isinstance(fields, list) else []
    for column in columns:
        if not isinstance(column, dict):
            raise refused(path, "its signature has a column that is no object")
        kind, named = column.get("type"), text(path, column, "name", "")
        if kind == "tensor":
            yield _tensor(path, column, named or name)
        elif not named and name == "input":
            return  # a row of features
        elif kind not in _COLUMNS:
            raise refused(path, f"column `{named}` is a {kind}, which the protocol has no datatype for")
        else:
            yield TensorSpec(named or name, _COLUMNS[kind], (1,))


def _tensor(path: Path, column: Mapping[str, Any], name: str) -> TensorSpec:
    spec = column.get("tensor-spec")
    shape = spec.get("shape") if isinstance(spec, dict) else None
    if not isinstance(spec, dict) or not isinstance(shape, list) or not shape or set(map(type, shape)) != {int}:
        raise refused(path, f"tensor `{name}` of its signature has no shape")
    datatype = _TENSORS.get(text(path, spec, "dtype", ""))
    if datatype is None:
        raise refused(path, f"tensor `{name}` is of an unknown dtype")
    if len(shape) == 1:  # one number a row
        return TensorSpec(name, datatype, (1,), reshape=())
    return TensorSpec(name, datatype, tuple(shape[1:]))


# ── MLServer ──────────────────────────────────────────────────────────────────────────────────────────


def _of_mlserver(path: Path, name: str) -> Described:
    written = mapping(path, json.loads)
    if (own := written.get("name")) not in (None, "", name):
        raise refused(path, f"its name is {own}, and its folder's is {name}: give the folder the model's name")
    implementation = text(path, written, "implementation", "")
    backend = _RUNTIMES.get(implementation)
    if backend is None:
        served = ", ".join(_RUNTIMES)
        raise refused(path, f"implementation `{implementation}` is not served here: these are: {served}")
    parameters = part(path, written, "parameters")
    file = local(path, text(path, parameters, "uri", ""))
    unused = [key for key in parameters if key != "uri"]
    if backend == hugging_face.BACKEND:
        config, unused = foreign_pipelines.of_mlserver(path, parameters, ModelConfig(name, backend), file)
    unused += [key for key in written if key not in _OF_RUNTIME and not key.startswith("max_batch_")]
    if backend == MLFLOW:
        config = _of_mlflow(path.parent / file / MLFLOW, f"{file}/" if file else "", name)
    elif backend != hugging_face.BACKEND:
        config = ModelConfig(name, backend, default_model_filename=file)
        if backend == "xgboost":
            config = replace(config, parameters={"output_class": "auto"})
        if backend in _ROWS:
            config = replace(config, inputs=tuple(_input(path, one) for one in written.get("inputs") or ()))
    return _batched(path, written, config, unused)


def _batched(path: Path, written: Mapping[str, Any], config: ModelConfig, unused: Sequence[str]) -> Described:
    """The configuration with the batches of MLServer."""
    config = replace(config, max_batch_size=whole(path, written, "max_batch_size"))
    delay = written.get("max_batch_time")
    if isinstance(delay, int | float) and delay > 0 and config.max_batch_size > 1:
        config = replace(config, dynamic_batching=DynamicBatching(max_queue_delay=float(delay)))
    return Described(config, tuple(unused))


def _input(path: Path, fields: object) -> TensorSpec:
    """An input of rows. The first dimension that MLServer writes is the batch."""
    shape = fields.get("shape") if isinstance(fields, dict) else None
    if not isinstance(fields, dict) or not isinstance(shape, list) or not all(isinstance(one, int) for one in shape):
        raise refused(path, "an input has no shape")
    dims = tuple(one if one > 0 else -1 for one in shape[1:]) or (-1,)
    return TensorSpec(text(path, fields, "name", "input"), text(path, fields, "datatype", "FP64"), dims)
