"""LightGBM's models in its own text format.

Every output is the prediction; `predict_type: margin` returns it before the last transformation.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any, Final

import lightgbm

from runtimes.tensor.backends.files import model_file
from runtimes.tensor.backends.tabular import Method, TabularModel, described, gives_margin
from runtimes.tensor.configuration.model_config import ModelConfig
from runtimes.tensor.interfaces import Device, Model

FILENAMES: Final = ("model.txt", "lightgbm.txt")


class LightgbmBackend:
    name = "lightgbm"

    def complete(self, config: ModelConfig, folder: Path) -> ModelConfig:
        booster = _booster(config, folder)
        return described(config, booster.num_feature(), "FP64", {"predict": _method(booster, config, 1)})

    def load(self, config: ModelConfig, folder: Path, device: Device) -> Model:
        method = _method(_booster(config, folder), config, device.threads)
        return TabularModel(config, {spec.name: method for spec in config.outputs})


def _booster(config: ModelConfig, folder: Path) -> Any:
    return lightgbm.Booster(model_file=str(model_file(config, folder, *FILENAMES)))


def _method(booster: Any, config: ModelConfig, threads: int) -> Method:
    return partial(booster.predict, raw_score=gives_margin(config), num_threads=threads)


BACKEND = LightgbmBackend()
