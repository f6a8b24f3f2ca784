"""LightGBM's models in its own text format.

Every output is the prediction; `predict_type: margin` returns it before the last transformation.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import lightgbm

from runtimes.tensor.backends.files import model_file
from runtimes.tensor.backends.tabular import Method, TabularModel, described
from runtimes.tensor.configuration.model_config import ModelConfig
from runtimes.tensor.interfaces import Array, Device, Model, ModelLoadError

FILENAMES: Final = ("model.txt", "lightgbm.txt")


class LightgbmBackend:
    name = "lightgbm"

    def complete(self, config: ModelConfig, folder: Path) -> ModelConfig:
        booster = _booster(config, folder)
        return described(config, booster.num_feature(), "FP64", {"predict": _method(booster, config, 1)})

    def load(self, config: ModelConfig, folder: Path, device: Device) -> Model:
        if config.quantize:
            raise ModelLoadError("`quantize` is for networks, not for trees")
        method = _method(_booster(config, folder), config, device.threads)
        return TabularModel(config, {spec.name: method for spec in config.outputs})


def _booster(config: ModelConfig, folder: Path) -> Any:
    return lightgbm.Booster(model_file=str(model_file(config, folder, *FILENAMES)))


def _method(booster: Any, config: ModelConfig, threads: int) -> Method:
    kind = config.parameters.get("predict_type", "value")
    if kind not in ("value", "margin"):
        raise ModelLoadError(f"parameter `predict_type` is value or margin, not `{kind}`")

    def predict(rows: Array) -> Any:
        return booster.predict(rows, raw_score=kind == "margin", num_threads=threads)

    return predict


BACKEND = LightgbmBackend()
