"""The parameters of models of trees: which number of a prediction is the answer.

`predict_type: margin` is the sum before the last transformation. The others are those of Triton's backend for forests
(fil): `output_class` answers the class, `threshold` is that of two classes, `predict_proba` answers all probabilities.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np

from runtimes.tensor.configuration.model_config import ModelConfig
from runtimes.tensor.interfaces import Array, ModelLoadError

_SWITCHES: Final = {"true": True, "false": False}


class TreeAnswer(NamedTuple):
    """The answer that the parameters select."""

    is_margin: bool
    is_class: bool
    is_probabilities: bool
    threshold: float

    def of(self, prediction: Any) -> Array:
        """The answer in a prediction: one number a row, or one for each class."""
        array = np.asarray(prediction)
        if self.is_probabilities:  # of a classifier, which fil is told by `output_class`
            return np.stack([1 - array, array], axis=1) if array.ndim == 1 else array
        if self.is_class:
            return array.argmax(axis=1) if array.ndim > 1 else (array > self.threshold).astype(np.int64)
        return array


def answer_of(config: ModelConfig, *, is_classifier: bool = True) -> TreeAnswer:
    """The answer of a model. `is_classifier` decides where `output_class` is auto.

    Raises `ModelLoadError` for a parameter that has no such value, or two that contradict each other.
    """
    if config.quantize:
        raise ModelLoadError("`quantize` is for networks, not for trees")
    texts = [spec.name for spec in config.inputs if spec.datatype == "BYTES"]
    if texts:
        raise ModelLoadError(f"trees take numbers, and the input `{texts[0]}` is BYTES: send codes of categories")
    kind = config.parameters.get("predict_type", "value")
    if kind not in ("value", "margin"):
        raise ModelLoadError(f"parameter `predict_type` is value or margin, not `{kind}`")
    is_probabilities = _switch(config, "predict_proba")
    if config.parameters.get("output_class") == "auto":
        is_class = is_classifier and kind == "value" and not is_probabilities
    else:
        is_class = _switch(config, "output_class")
    if kind == "margin" and (is_class or is_probabilities):
        raise ModelLoadError("`predict_type: margin` is neither `output_class` nor `predict_proba`: give one of them")
    written = config.parameters.get("threshold", "0.5")
    try:
        threshold = float(written)
    except ValueError:
        raise ModelLoadError(f"parameter `threshold` is a number, not `{written}`") from None
    return TreeAnswer(kind == "margin", is_class, is_probabilities, threshold)


def _switch(config: ModelConfig, name: str) -> bool:
    written = config.parameters.get(name, "false").lower()
    if written not in _SWITCHES:
        raise ModelLoadError(f"parameter `{name}` is true or false, not `{written}`")
    return _SWITCHES[written]
