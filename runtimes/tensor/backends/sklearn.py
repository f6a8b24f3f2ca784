"""Models of scikit-learn, and others with its methods.

An output is named after the method that it comes from: `predict`, `predict_proba`, `decision_function`, `transform` ….
Files are joblib's or pickle's, which run code when they are read and so must be allowed
(`parameters: {allow_pickle: true}`), or skops', which hold data only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any, Final

import joblib

from config.installing import installing
from runtimes.tensor.backends.contributions import ContributingModel, of_estimator
from runtimes.tensor.backends.files import model_file
from runtimes.tensor.backends.tabular import Method, TabularModel, described, joined
from runtimes.tensor.configuration.model_config import ModelConfig
from runtimes.tensor.interfaces import Array, Device, Model, ModelLoadError

FILENAMES: Final = ("model.skops", "model.joblib", "model.pkl")
_LIBRARIES: Final = frozenset({"sklearn", "xgboost", "lightgbm", "catboost", "imblearn", "builtins"})
CALL: Final = "__call__"
"""The model itself, where it is a function of one array."""
METHODS: Final = (
    "predict",
    "predict_proba",
    "predict_log_proba",
    "decision_function",
    "score_samples",
    "transform",
)


class SklearnBackend:
    name = "sklearn"

    def complete(self, config: ModelConfig, folder: Path) -> ModelConfig:
        if config.inputs and config.outputs and (config.max_batch_size or config.batch):
            return config
        model = estimator(config, folder)
        methods = {name: _method(model, name) for name in _names(config, model)}
        features = getattr(model, "n_features_in_", -1)
        if features < 0 and not (config.inputs and config.outputs):
            raise ModelLoadError("the model does not have its number of features: write its inputs and outputs")
        completed = described(config, features, "FP64", {name: _of_frame(model, run) for name, run in methods.items()})
        is_assumed = not config.inputs and not config.batch and not _is_of_libraries(model)
        return replace(completed, batch="assumed") if is_assumed else completed

    def load(self, config: ModelConfig, folder: Path, device: Device) -> Model:
        if config.quantize:
            raise ModelLoadError("`quantize` is for networks: scikit-learn's models have none of their weights")
        model = estimator(config, folder)
        is_called = config.parameters.get("methods") == CALL
        methods = {spec.name: _method(model, CALL if is_called else spec.name) for spec in config.outputs}
        if _features(model):
            _frame()
        return TabularModel(config, methods, _features(model), partial(_table, model))

    def explainer(self, config: ModelConfig, folder: Path, device: Device) -> Model:
        """See `ExplainingBackend`."""
        model = estimator(config, folder)
        contributions, raw = of_estimator(model)
        return ContributingModel(config, _features(model), contributions, raw, partial(_table, model))


def estimator(config: ModelConfig, folder: Path) -> Any:
    """The fitted model of the file."""
    path = model_file(config, folder, *FILENAMES)
    if path.suffix == ".skops":
        return _skops(path, config)
    if config.parameters.get("allow_pickle") != "true":
        raise ModelLoadError(
            f"{path.name} runs code when it is read: save the model with skops or as ONNX, or set"
            " parameters: {allow_pickle: true} if you trust its author"
        )
    return joblib.load(path)


def _skops(path: Path, config: ModelConfig) -> Any:
    try:
        from skops import io
    except ModuleNotFoundError:
        raise ModelLoadError(f"{path.name} needs skops, which is not installed: run `pip install skops`") from None
    trusted = [name.strip() for name in config.parameters.get("trusted", "").split(",") if name.strip()]
    unknown = [name for name in io.get_untrusted_types(file=path) if name not in trusted]
    if unknown:
        raise ModelLoadError(
            f"{path.name} holds types that are not on the list of safe types: name them in the parameter `trusted`:"
            f" {', '.join(unknown)}"
        )
    return io.load(path, trusted=trusted)


def _is_of_libraries(model: Any) -> bool:
    """Whether the rows of a model are independent, as those of all estimators of these libraries are."""
    parts = [model, *(step for _, step in getattr(model, "steps", ()))]
    return all(type(part).__module__.partition(".")[0] in _LIBRARIES for part in parts)


def _features(model: Any) -> Sequence[str]:
    return [str(name) for name in getattr(model, "feature_names_in_", ())]


def _names(config: ModelConfig, model: Any) -> list[str]:
    """The methods that are outputs: those of the parameter `methods`, or the usual ones that the model has."""
    written = [name.strip() for name in config.parameters.get("methods", "").split(",") if name.strip()]
    if unknown := [name for name in written if name not in (*METHODS, CALL)]:
        raise ModelLoadError(f"parameter `methods` has `{unknown[0]}`: there are {', '.join((*METHODS, CALL))}")
    usual = ("predict", "predict_proba") if callable(getattr(model, "predict", None)) else ("transform",)
    return written or [name for name in usual if callable(getattr(model, name, None))]


def _table(model: Any, columns: Sequence[Array]) -> Any:
    """The argument of the model's methods: a data frame for a model that was fitted on one, a list of texts for a
    model of texts, else an array. Raises `ModelLoadError` without pandas."""
    features = _features(model)
    if not features:
        is_text = len(columns) == 1 and columns[0].dtype.hasobject and not hasattr(model, "n_features_in_")
        return columns[0].ravel() if is_text else joined(columns)
    frame = _frame()
    if len(columns) == len(features):
        return frame({name: column.ravel() for name, column in zip(features, columns, strict=True)})
    return frame(joined(columns), columns=features)


@cache
def _frame() -> Any:
    """The class of data frames. Only models that were fitted on them need pandas."""
    try:
        from pandas import DataFrame
    except ModuleNotFoundError:
        raise ModelLoadError(f"the model was fitted on a data frame: {installing('sklearn')}, with pandas") from None
    return DataFrame


def _of_frame(model: Any, run: Method) -> Method:
    return lambda row: run(_table(model, [row]))


def _method(model: Any, name: str) -> Method:
    """The method that computes an output; any other name is the prediction."""
    if name == CALL:
        if not callable(model):
            raise ModelLoadError(f"a {type(model).__name__} cannot be called, as the parameter `methods` demands")
        called: Method = model
        return called
    if name in METHODS and not callable(getattr(model, name, None)):
        have = [one for one in METHODS if callable(getattr(model, one, None))]
        raise ModelLoadError(f"a {type(model).__name__} has no `{name}`: it has {', '.join(have) or 'none'}")
    method: Method = getattr(model, name if name in METHODS else "predict")
    return method


BACKEND = SklearnBackend()
