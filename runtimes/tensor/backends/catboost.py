"""CatBoost's models in its own formats: binary, or JSON.

An output is named after the method of CatBoost's estimators that it comes from: `predict`, `predict_proba` or
`predict_log_proba`. A model with categories or texts has an input for each feature: categories are texts or whole
numbers.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

import catboost
import numpy as np

from runtimes.tensor.backends.contributions import ContributingModel, pool_of
from runtimes.tensor.backends.files import model_file
from runtimes.tensor.backends.tabular import INPUT, Method, TabularModel, described, joined
from runtimes.tensor.configuration.model_config import ModelConfig, TensorSpec
from runtimes.tensor.interfaces import Array, Device, Model, ModelLoadError

FILENAMES: Final = ("model.cbm", "model.cb", "catboost.cbm")
_MARGIN: Final = "RawFormulaVal"
_OF_LOSS: Final = {
    "Poisson": "Exponent", "Tweedie": "Exponent", "RMSEWithUncertainty": "RMSEWithUncertainty",
}  # fmt: skip
"""What `CatBoostRegressor.predict` answers for these losses, by CatBoost's names of kinds of predictions."""
_OF_CLASSES: Final = {"predict": "Class", "predict_proba": "Probability", "predict_log_proba": "LogProbability"}


class CatboostBackend:
    name = "catboost"

    def complete(self, config: ModelConfig, folder: Path) -> ModelConfig:
        model = _model(config, folder)
        names, texts = list(model.feature_names_), _texts_of(model)
        if texts and not config.inputs:
            specs = [TensorSpec(name, "BYTES" if name in texts else "FP64", (1,)) for name in names]
            config = dataclasses.replace(config, inputs=tuple(specs))
        outputs = ("predict", "predict_proba") if len(model.classes_) else ("predict",)
        methods = {name: partial(_of_zeros, _method(model, config, name, 1), model) for name in outputs}
        return described(config, len(names), "FP64", methods)

    def load(self, config: ModelConfig, folder: Path, device: Device) -> Model:
        if config.quantize:
            raise ModelLoadError("`quantize` is for networks, not for trees")
        model = _model(config, folder)
        _check_inputs(config, _texts_of(model))
        methods = {spec.name: _method(model, config, spec.name, device.threads) for spec in config.outputs}
        return TabularModel(config, methods, model.feature_names_, _objects if _texts_of(model) else joined)

    def explainer(self, config: ModelConfig, folder: Path, device: Device) -> Model:
        """See `ExplainingBackend`."""
        model = _model(config, folder)

        def contributions(table: Any) -> Any:
            pool = pool_of(model, table)
            return model.get_feature_importance(pool, type="ShapValues", thread_count=device.threads)

        raw = partial(model.predict, prediction_type=_MARGIN, thread_count=device.threads)
        table = _objects if _texts_of(model) else joined
        return ContributingModel(config, model.feature_names_, contributions, raw, table)


def _model(config: ModelConfig, folder: Path) -> Any:
    path = model_file(config, folder, *FILENAMES)
    with path.open("rb") as file:
        form = "json" if file.read(1) == b"{" else "cbm"
    model = catboost.CatBoost().load_model(str(path), format=form)
    if model.get_embedding_feature_indices():
        raise ModelLoadError("the model has features that are embeddings, which no input of this backend gives")
    return model


def _texts_of(model: Any) -> frozenset[str]:
    """The names of the features that are categories or texts."""
    places = [*model.get_cat_feature_indices(), *model.get_text_feature_indices()]
    return frozenset(model.feature_names_[place] for place in places)


def _check_inputs(config: ModelConfig, texts: frozenset[str]) -> None:
    """Raises `ModelLoadError` for inputs that cannot be the model's features."""
    for spec in config.inputs:
        if not texts and spec.datatype == "BYTES":
            raise ModelLoadError(f"input `{spec.name}` is BYTES, and the model has neither categories nor texts")
        if texts and spec.name == INPUT and len(config.inputs) == 1:
            raise ModelLoadError("the model has categories or texts: give each feature an input of its own")
        if spec.name in texts and spec.datatype.startswith(("FP", "BF")):
            raise ModelLoadError(f"input `{spec.name}` is {spec.datatype}: a category is BYTES or a whole number")


def _method(model: Any, config: ModelConfig, name: str, threads: int) -> Method:
    """The method that computes an output; any name but those of `_OF_CLASSES` is the prediction."""
    kind = config.parameters.get("predict_type", "value")
    if kind not in ("value", "margin"):
        raise ModelLoadError(f"parameter `predict_type` is value or margin, not `{kind}`")
    if len(model.classes_):
        prediction = _OF_CLASSES.get(name, "Class")
    elif name in _OF_CLASSES and name != "predict":
        raise ModelLoadError(f"the model has no classes, so it has no `{name}`: it has predict")
    else:
        prediction = _OF_LOSS.get(_loss(model), _MARGIN)
    if kind == "margin" and prediction != "Probability":
        prediction = _MARGIN

    def predict(table: Any) -> Any:
        answer = model.predict(table, prediction_type=prediction, thread_count=threads)
        return answer[:, 0] if prediction == "Class" and answer.ndim == 2 and answer.shape[1] == 1 else answer

    return predict


def _loss(model: Any) -> str:
    """The name of the loss that the model was trained by; empty if its file does not have it."""
    try:
        return str(json.loads(model.get_metadata()["params"])["loss_function"]["type"])
    except (KeyError, TypeError, ValueError):
        return ""


def _objects(columns: Sequence[Array]) -> Array:
    """Features of several kinds as one array of objects: a category must stay a text or a whole number."""
    return np.concatenate([column.reshape(len(column), -1).astype(object) for column in columns], axis=1)


def _of_zeros(run: Method, model: Any, row: Array) -> Any:
    """The answer for a row of zeros, whose texts are "0"."""
    if texts := _texts_of(model):
        row = _objects([row])
        row[:, [name in texts for name in model.feature_names_]] = "0"
    return run(row)


BACKEND = CatboostBackend()
