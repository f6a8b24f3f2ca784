"""Models that explain themselves: trees know exactly which part each feature has in their sum.

The parts are the Shapley values of Lundberg et al., "From local explanations to global understanding with explainable
AI for trees" (2020), with the training data in the trees as their background. XGBoost, LightGBM and CatBoost compute
them, and SHAP's library does for scikit-learn.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any, Final

import numpy as np

from runtimes.tensor.backends.tabular import Table, decoded, in_order, joined
from runtimes.tensor.configuration.model_config import ModelConfig
from runtimes.tensor.explanations.explanation import zeros_of
from runtimes.tensor.interfaces import Array, ModelLoadError, Tensors

Contributions = Callable[[Any], Array]
"""The parts of a table, with the base after them: [rows, features + 1] or [rows, targets, features + 1]."""
Raw = Callable[[Any], Array]
"""The sum of the trees for a table, computed by itself: [rows] or [rows, targets]."""
_TOLERANCE: Final = 1e-3


class ContributingModel:
    """Has the outputs of `explanations.exact`. Raises `ModelLoadError` if the parts do not add up for a row of zeros:
    the library does not know this kind of trees."""

    def __init__(
        self, config: ModelConfig, features: Sequence[str], contributions: Contributions, raw: Raw,
        table: Table | None = None,
    ) -> None:  # fmt: skip
        names = [spec.name for spec in config.inputs]
        self._inputs = in_order(names, features)
        self._table = table or joined
        self._contributions = contributions
        self._raw = raw
        widths = {spec.name: prod(spec.dims) for spec in config.inputs}
        starts = dict(zip(self._inputs, np.cumsum([0, *(widths[name] for name in self._inputs)]), strict=False))
        self._order = np.concatenate([np.arange(widths[name]) + starts[name] for name in names])
        """The model's features in the order of the configuration's inputs."""
        self._try(config)

    def infer(self, inputs: Tensors) -> Tensors:
        table = self._table([decoded(inputs[name]) for name in self._inputs])
        parts = np.asarray(self._contributions(table), np.float64)
        output = np.asarray(self._raw(table), np.float64).reshape(len(parts), -1)
        parts = parts.reshape(len(parts), output.shape[1], -1)
        return {"values": parts[:, :, :-1][:, :, self._order], "base": parts[:, :, -1], "output": output}

    def close(self) -> None:
        """Release nothing: the library has no state beside the model."""

    def _try(self, config: ModelConfig) -> None:
        answer = self.infer(zeros_of(config))
        gap = np.abs(answer["base"] + answer["values"].sum(axis=2) - answer["output"]).max()
        if not gap <= _TOLERANCE * (1 + np.abs(answer["output"]).max()):
            raise ModelLoadError("the contributions of its trees do not add up to its output")


def of_booster(parts: Any, targets: int) -> Array:
    """LightGBM's contributions, which lie in one row for all targets."""
    array = parts.toarray() if hasattr(parts, "toarray") else np.asarray(parts)
    return array.reshape(len(array), targets, -1)


def of_estimator(model: Any) -> tuple[Contributions, Raw]:
    """The functions of a fitted estimator. Raises `ModelLoadError` if it is none of trees."""
    library = type(model).__module__.partition(".")[0]
    if library == "xgboost":
        import xgboost

        booster = model.get_booster()
        last = int(getattr(model, "best_iteration", -1) if booster.attr("best_iteration") else -1) + 1

        def matrix(table: Any) -> Any:
            return xgboost.DMatrix(table, missing=model.missing, enable_categorical=True)

        return (
            lambda table: booster.predict(matrix(table), pred_contribs=True, iteration_range=(0, last)),
            lambda table: model.predict(table, output_margin=True),
        )
    if library == "lightgbm":
        targets = model.booster_.num_model_per_iteration()
        return (
            lambda table: of_booster(model.predict(table, pred_contrib=True), targets),
            lambda table: model.predict(table, raw_score=True),
        )
    if library == "catboost":
        return (
            lambda table: model.get_feature_importance(pool_of(model, table), type="ShapValues"),
            lambda table: model.predict(table, prediction_type="RawFormulaVal"),
        )
    return _of_sklearn(model)


def pool_of(model: Any, table: Any) -> Any:
    """CatBoost's form of a table, in which categories and texts are marked: their cells are no numbers."""
    import catboost

    places = {"cat_features": model.get_cat_feature_indices(), "text_features": model.get_text_feature_indices()}
    return catboost.Pool(table, **{name: given for name, given in places.items() if given})


_FORESTS: Final = ("RandomForest", "ExtraTrees", "DecisionTree", "ExtraTree")
_BOOSTED: Final = ("GradientBoosting", "HistGradientBoosting")
_KINDS: Final = ("Classifier", "Regressor")


def _of_sklearn(model: Any) -> tuple[Contributions, Raw]:
    name = type(model).__name__
    kind = next((kind for kind in _KINDS if name.endswith(kind)), "")
    stem = name.removesuffix(kind)
    if not type(model).__module__.startswith("sklearn.") or not kind or stem not in (*_FORESTS, *_BOOSTED):
        raise ModelLoadError(f"a {name} is no model of trees: use `method: permutation`")
    try:
        import shap
    except ModuleNotFoundError:
        from config.installing import installing

        raise ModelLoadError(
            f"the trees of scikit-learn need shap, which is not installed: {installing('explain')}"
        ) from None
    try:
        explainer = shap.TreeExplainer(model, feature_perturbation="tree_path_dependent")
    except Exception as error:
        raise ModelLoadError(f"shap cannot explain this {name} exactly: {error}") from None
    method = "predict"
    if kind == "Classifier":
        method = "predict_proba" if stem in _FORESTS else "decision_function"

    def contributions(table: Any) -> Array:
        values = np.asarray(explainer.shap_values(table, check_additivity=False), np.float64)
        values = values[:, None] if values.ndim == 2 else np.moveaxis(values, 2, 1)
        base = np.broadcast_to(np.ravel(explainer.expected_value), values.shape[:2])
        return np.concatenate([values, base[:, :, None]], axis=2)

    return contributions, getattr(model, method)
