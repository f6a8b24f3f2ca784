"""XGBoost's models in its own formats: JSON and UBJSON.

Every output is the prediction; `predict_type: margin` returns it before the last transformation.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any, Final

import xgboost

from runtimes.tensor.backends.files import model_file
from runtimes.tensor.backends.tabular import Method, TabularModel, described, gives_margin
from runtimes.tensor.configuration.model_config import ModelConfig
from runtimes.tensor.interfaces import Device, Model

FILENAMES: Final = ("model.ubj", "model.json", "xgboost.ubj", "xgboost.json")


class XgboostBackend:
    name = "xgboost"

    def complete(self, config: ModelConfig, folder: Path) -> ModelConfig:
        booster = _booster(config, folder, Device(threads=1))
        return described(config, booster.num_features(), "FP32", {"predict": _method(booster, config)})

    def load(self, config: ModelConfig, folder: Path, device: Device) -> Model:
        method = _method(_booster(config, folder, device), config)
        return TabularModel(config, {spec.name: method for spec in config.outputs})


def _booster(config: ModelConfig, folder: Path, device: Device) -> Any:
    booster = xgboost.Booster()
    booster.load_model(model_file(config, folder, *FILENAMES))
    booster.set_param({"nthread": device.threads, "device": "cpu" if device.gpu is None else f"cuda:{device.gpu}"})
    return booster


def _method(booster: Any, config: ModelConfig) -> Method:
    return partial(booster.inplace_predict, predict_type="margin" if gives_margin(config) else "value")


BACKEND = XgboostBackend()
