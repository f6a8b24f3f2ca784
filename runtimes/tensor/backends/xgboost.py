"""XGBoost's models in its own formats: JSON and UBJSON.

Every output is the prediction; `trees` has the parameters that select another number. A model that stopped early
answers with its best rounds, as `XGBClassifier` does; the parameter `rounds: all` uses all.
"""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any, Final

import xgboost

from runtimes.tensor.backends.contributions import ContributingModel
from runtimes.tensor.backends.files import model_file
from runtimes.tensor.backends.tabular import Method, TabularModel, described
from runtimes.tensor.backends.trees import answer_of
from runtimes.tensor.configuration.model_config import ModelConfig
from runtimes.tensor.interfaces import Device, Model, ModelLoadError

FILENAMES: Final = ("model.ubj", "model.json", "xgboost.ubj", "xgboost.json")


class XgboostBackend:
    name = "xgboost"

    def complete(self, config: ModelConfig, folder: Path) -> ModelConfig:
        booster = _booster(config, folder, Device(threads=1))
        return described(config, booster.num_features(), "FP32", {"predict": _method(booster, config)})

    def load(self, config: ModelConfig, folder: Path, device: Device) -> Model:
        booster = _booster(config, folder, device)
        method = _method(booster, config)
        return TabularModel(config, {spec.name: method for spec in config.outputs}, booster.feature_names or ())

    def explainer(self, config: ModelConfig, folder: Path, device: Device) -> Model:
        """See `ExplainingBackend`."""
        booster = _booster(config, folder, device)
        last = _rounds(booster, config)

        def predict(table: Any, **more: bool) -> Any:
            matrix = xgboost.DMatrix(table, feature_names=booster.feature_names, feature_types=booster.feature_types)
            return booster.predict(matrix, iteration_range=(0, last), **more)

        contributions, raw = partial(predict, pred_contribs=True), partial(predict, output_margin=True)
        return ContributingModel(config, booster.feature_names or (), contributions, raw)


def _booster(config: ModelConfig, folder: Path, device: Device) -> Any:
    booster = xgboost.Booster()
    booster.load_model(model_file(config, folder, *FILENAMES))
    booster.set_param({"nthread": device.threads, "device": "cpu" if device.gpu is None else f"cuda:{device.gpu}"})
    return booster


def _method(booster: Any, config: ModelConfig) -> Method:
    learner = json.loads(booster.save_config())["learner"]
    objective = learner["objective"]["name"]
    answer = answer_of(config, is_classifier=objective.startswith(("binary:", "multi:")))
    if objective == "multi:softmax":  # its predictions are classes
        answer = answer._replace(is_class=False)
    last = _rounds(booster, config)
    if learner["gradient_booster"]["name"] == "gblinear":

        def linear(table: Any) -> Any:
            """Weights of features have no prediction in place."""
            matrix = xgboost.DMatrix(table, feature_names=booster.feature_names)
            return answer.of(booster.predict(matrix, output_margin=answer.is_margin))

        return linear
    kind = "margin" if answer.is_margin else "value"

    def trees(table: Any) -> Any:
        return answer.of(booster.inplace_predict(table, iteration_range=(0, last), predict_type=kind))

    return trees


def _rounds(booster: Any, config: ModelConfig) -> int:
    """The number of rounds that are used; 0 for all."""
    written = config.parameters.get("rounds", "best")
    if written not in ("best", "all"):
        raise ModelLoadError(f"parameter `rounds` is best or all, not `{written}`")
    best = booster.attr("best_iteration") if written == "best" else None
    return int(best) + 1 if best is not None else 0


BACKEND = XgboostBackend()
