"""LightGBM's models in its own text format.

Every output is the prediction; `trees` has the parameters that select another number.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any, Final

import lightgbm

from runtimes.tensor.backends.contributions import ContributingModel, of_booster
from runtimes.tensor.backends.files import model_file
from runtimes.tensor.backends.tabular import Method, TabularModel, described
from runtimes.tensor.backends.trees import answer_of
from runtimes.tensor.configuration.model_config import ModelConfig
from runtimes.tensor.interfaces import Device, Model

FILENAMES: Final = ("model.txt", "lightgbm.txt")


class LightgbmBackend:
    name = "lightgbm"

    def complete(self, config: ModelConfig, folder: Path) -> ModelConfig:
        booster = _booster(config, folder)
        return described(config, booster.num_feature(), "FP64", {"predict": _method(booster, config, 1)})

    def load(self, config: ModelConfig, folder: Path, device: Device) -> Model:
        booster = _booster(config, folder)
        method = _method(booster, config, device.threads)
        return TabularModel(config, {spec.name: method for spec in config.outputs}, booster.feature_name())

    def explainer(self, config: ModelConfig, folder: Path, device: Device) -> Model:
        """See `ExplainingBackend`."""
        booster = _booster(config, folder)
        targets = booster.num_model_per_iteration()

        def contributions(table: Any) -> Any:
            return of_booster(booster.predict(table, pred_contrib=True, num_threads=device.threads), targets)

        raw = partial(booster.predict, raw_score=True, num_threads=device.threads)
        return ContributingModel(config, booster.feature_name(), contributions, raw)


def _booster(config: ModelConfig, folder: Path) -> Any:
    return lightgbm.Booster(model_file=str(model_file(config, folder, *FILENAMES)))


def _method(booster: Any, config: ModelConfig, threads: int) -> Method:
    answer = answer_of(config)

    def predict(table: Any) -> Any:
        return answer.of(booster.predict(table, raw_score=answer.is_margin, num_threads=threads))

    return predict


BACKEND = LightgbmBackend()
