"""BentoML's modules that saved a model (`bentoml.sklearn` …) → the backend, the file, and what its signatures tell.

A signature names a method of the model, and whether its calls may be joined.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from runtimes.tensor.configuration.foreign import mlflow_config
from runtimes.tensor.configuration.listed import ListError
from runtimes.tensor.configuration.model_config import DynamicBatching, ModelConfig

CUSTOM_OBJECTS: Final = "custom_objects.pkl"
_MLFLOW: Final = "mlflow_model"
_CALL: Final = "__call__"
_ROWS: Final = 4096
"""The most rows of one request of a table."""
_ESTIMATORS: Final = (
    "predict", "predict_proba", "predict_log_proba", "decision_function", "score_samples", "transform",
)  # fmt: skip
_ADVICE: Final = {
    "bentoml.pytorch": "it is a pickle of a module: save it with bentoml.torchscript",
    "bentoml.keras": "export it as ONNX or a SavedModel",
    "bentoml.tensorflow": "put the SavedModel into a folder NAME/VERSION/model.savedmodel",
    "bentoml.transformers": "serve a folder of `save_pretrained`, or a model that generates by the LLM engine",
    "bentoml.diffusers": "serve it by its BentoML service, as a pool of the gateway",
}
Options = Mapping[str, Any]
_Read = Callable[[ModelConfig, Options, Mapping[str, Any]], ModelConfig]


def config_of(written: Mapping[str, Any], folder: Path, name: str) -> tuple[ModelConfig, tuple[str, ...]]:
    """The configuration of one version, and the settings without an effect. Blocks for the disk. Raises `ListError`."""
    module = written["module"]
    options, signatures = _part(written, "options"), _part(written, "signatures")
    if _part(options, "partial_kwargs"):
        raise ListError("`options.partial_kwargs` is not served here: arguments of a method would change its answers")
    config = ModelConfig(name)
    unused = [CUSTOM_OBJECTS] if (folder / CUSTOM_OBJECTS).is_file() else []
    if not module:  # files of any kind, which their names or their own descriptions tell
        return config, tuple(unused)
    if module not in _MODULES:
        advice = _ADVICE.get(module, f"these are: {', '.join(_MODULES)}")
        raise ListError(f"module `{module[:100]}` is not served here: {advice}")
    files, methods, read = _MODULES[module]
    _check(signatures, methods, module)
    file = next((one for one in files if (folder / one).exists()), "")
    if not file:
        raise ListError(f"there is no {' or '.join(files)} beside it")
    if module == "bentoml.mlflow":
        config = mlflow_config(folder / file / "MLmodel", name, f"{file}/")
    config = read(replace(config, default_model_filename=config.default_model_filename or file), options, signatures)
    unused += [f"options.{one}" for one in ("providers", "session_options") if options.get(one) is not None]
    batched, odd = _batching(signatures)
    if batched:
        config = replace(config, dynamic_batching=DynamicBatching())
    elif module == "bentoml.mlflow":  # its signature has the tensors of a row, so a request stays a batch of its own
        config = replace(config, max_batch_size=_ROWS)
    else:
        config = replace(config, max_batch_size=0, batch="written")
    return config, (*unused, *odd)


def _check(signatures: Mapping[str, Any], methods: tuple[str, ...], module: str) -> None:
    """Raises `ListError` for a method that is not served, or a signature that is malformed."""
    for method, signature in signatures.items():
        if method not in methods:
            shown = method[:100] if isinstance(method, str) else type(method).__name__
            raise ListError(
                f"method `{shown}` of its signatures is not served here: of {module} these are: {', '.join(methods)}"
            )
        if not isinstance(signature, dict) or not isinstance(signature.get("batchable", False), bool):
            raise ListError(f"the signature of `{method}` must be an object, and its `batchable` true or false")


def _batching(signatures: Mapping[str, Any]) -> tuple[bool, list[str]]:
    """Whether calls may be joined, as the author allows for every method, and what has no effect.

    Calls that BentoML would join along another dimension than the first are not joined: their answers are the same.
    """
    odd = []
    for method, signature in signatures.items():
        dimension = signature.get("batch_dim", 0)
        pair = list(dimension) if isinstance(dimension, list | tuple) else [dimension, dimension]
        if len(pair) != 2 or any(not isinstance(one, int) or isinstance(one, bool) for one in pair):
            raise ListError(f"`batch_dim` of the signature of `{method}` must be a number, or two")
        if signature.get("batchable") and pair != [0, 0]:
            odd.append(f"signatures.{method}.batch_dim")
    return bool(signatures) and not odd and all(one.get("batchable") for one in signatures.values()), odd


# ── modules ───────────────────────────────────────────────────────────────────────────────────────────


def _sklearn(config: ModelConfig, options: Options, signatures: Mapping[str, Any]) -> ModelConfig:
    parameters = {"methods": ",".join(signatures)} if signatures else {}
    return replace(config, backend="sklearn", parameters=parameters)


def _xgboost(config: ModelConfig, options: Options, signatures: Mapping[str, Any]) -> ModelConfig:
    """A Booster answers with all its rounds, an estimator with its best ones."""
    kind = options.get("model_class", "Booster")
    if not isinstance(kind, str):  # an alias of YAML may be of any size as text
        raise ListError("`options.model_class` must be text")
    if kind == "Booster":
        parameters = {"rounds": "all"}
    else:
        parameters = {"output_class": "true"} if kind.endswith("Classifier") else {}
    if "predict_proba" in signatures:
        if not kind.endswith("Classifier"):
            raise ListError(f"a {kind[:100]} has no `predict_proba`")
        if len(signatures) > 1:
            raise ListError("its signatures have `predict` and `predict_proba`: a model here has one answer, keep one")
        parameters = {"predict_proba": "true"}
    return replace(config, backend="xgboost", parameters=parameters)


def _lightgbm(config: ModelConfig, options: Options, signatures: Mapping[str, Any]) -> ModelConfig:
    return replace(config, backend="lightgbm")


def _catboost(config: ModelConfig, options: Options, signatures: Mapping[str, Any]) -> ModelConfig:
    """The class `CatBoost` itself answers sums of its trees."""
    parameters = {"predict_type": "margin"} if options.get("training_class_name") == "CatBoost" else {}
    return replace(config, backend="catboost", parameters=parameters)


def _onnx(config: ModelConfig, options: Options, signatures: Mapping[str, Any]) -> ModelConfig:
    return replace(config, backend="onnx")


def _torchscript(config: ModelConfig, options: Options, signatures: Mapping[str, Any]) -> ModelConfig:
    return replace(config, backend="torch")


def _mlflow(config: ModelConfig, options: Options, signatures: Mapping[str, Any]) -> ModelConfig:
    return config


_MODULES: Final[Mapping[str, tuple[tuple[str, ...], tuple[str, ...], _Read]]] = {
    "bentoml.sklearn": (("saved_model.pkl",), _ESTIMATORS, _sklearn),
    "bentoml.xgboost": (("saved_model.ubj", "saved_model.json"), ("predict", "predict_proba"), _xgboost),
    "bentoml.lightgbm": (("saved_model.ubj", "saved_model.txt"), ("predict",), _lightgbm),
    "bentoml.catboost": (
        ("saved_model.cbm",),
        ("predict", "predict_proba", "predict_log_proba"),
        _catboost,
    ),
    "bentoml.onnx": (("saved_model.onnx",), ("run",), _onnx),
    "bentoml.torchscript": (("saved_model.pt",), (_CALL, "forward"), _torchscript),
    "bentoml.pytorch_lightning": (("saved_model.pt",), (_CALL, "forward"), _torchscript),
    "bentoml.picklable_model": (("saved_model.pkl",), (_CALL, *_ESTIMATORS), _sklearn),
    "bentoml.mlflow": ((_MLFLOW,), ("predict",), _mlflow),
}
"""By module: the names of its file in different releases, the methods that are served, and the rest."""


def _part(fields: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    part = fields.get(name) or {}
    if not isinstance(part, dict):
        raise ListError(f"`{name}` must be an object")
    return part
