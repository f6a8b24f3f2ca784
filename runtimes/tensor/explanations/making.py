"""The explainer that a model's configuration selects."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Final

from runtimes.tensor.configuration.model_config import ModelConfig
from runtimes.tensor.explanations import background
from runtimes.tensor.explanations.exact import Closing, ExactExplainer, explaining
from runtimes.tensor.explanations.explanation import Explainer, explained_output
from runtimes.tensor.explanations.row_requests import Inferring
from runtimes.tensor.explanations.sampled import SampledExplainer
from runtimes.tensor.interfaces import Array, Instance, ModelLoadError
from runtimes.tensor.scheduling.cached import Cached

_OF_TREES: Final = ("sklearn", "xgboost", "lightgbm", "catboost")
"""Backends with models of trees."""
RAW: Final = "raw"
"""What trees are explained as: their sum, before a last transformation such as that to probabilities."""
log = logging.getLogger(__name__)
Start = Callable[[ModelConfig, Path], Awaitable[Sequence[Instance]]]
Schedule = Callable[[ModelConfig, Sequence[Instance]], Closing]


async def make(
    config: ModelConfig, model_folder: Path, folder: Path, scheduler: Inferring, start: Start, schedule: Schedule
) -> Explainer:
    """The explainer of a loaded version. `scheduler` is the model's. Raises `ModelLoadError`."""
    assert config.explain is not None
    try:
        if not config.max_batch_size:
            raise ModelLoadError("only models with batches are explained: set `max_batch_size`")
        method = config.explain.method
        own = "tree" if config.backend in _OF_TREES else "gradients" if config.backend == "torch" else ""
        mixes = config.explain.patch or config.explain.baseline is not None or config.explain.features == "words"
        if method in ("tree", "gradients") or (method == "auto" and own and not mixes):
            try:
                if method not in ("auto", own):
                    raise ModelLoadError(
                        f"the backend `{config.backend}` has no `method: {method}`: use"
                        f" `{'permutation' if method == 'tree' else 'occlusion'}`, which every backend has"
                    )
                return await _exact(config, folder, start, schedule, gradients=own == "gradients")
            except ModelLoadError as error:
                if method != "auto":
                    raise
                log.info("%s: no explanations of its own, mixtures of rows are used: %s", config.name, error)
        return await _sampled(config, model_folder, scheduler)
    except ModelLoadError as error:
        raise ModelLoadError(f"explain: {error}") from error


async def _exact(
    config: ModelConfig, folder: Path, start: Start, schedule: Schedule, *, gradients: bool
) -> ExactExplainer:
    if not gradients and (optional := [spec.name for spec in config.inputs if spec.optional]):
        raise ModelLoadError(f"trees have a part for every feature, and the input `{optional[0]}` is optional")
    own = explaining(config, gradients=gradients)
    explained = explained_output(config)
    name = explained.name if gradients and explained is not None else RAW
    instances = await start(own, folder)
    try:
        return ExactExplainer(config, name, schedule(own, instances), instances, has_gradients=gradients)
    except BaseException:
        for instance in instances:
            await instance.aclose()
        raise


async def _sampled(config: ModelConfig, model_folder: Path, scheduler: Inferring) -> SampledExplainer:
    assert config.explain is not None
    output = explained_output(config)
    if output is None or output.datatype not in ("FP16", "FP32", "FP64"):
        name = config.explain.output
        raise ModelLoadError(f"`{name}` is no output of numbers" if name else "the model has no output of numbers")
    rows = await asyncio.to_thread(_background, config, model_folder)
    inner = scheduler.uncached if isinstance(scheduler, Cached) else scheduler
    return SampledExplainer(config, output, inner, rows)


def _background(config: ModelConfig, model_folder: Path) -> dict[str, Array]:
    """The rows that stand for absent features. Raises `ModelLoadError`. Blocks for the disk."""
    assert config.explain is not None
    rules = config.explain
    if rules.features == "words":
        return {}
    if rules.background:
        return background.read(model_folder / rules.background, config)
    if rules.baseline is None and rules.method != "occlusion":
        raise ModelLoadError(
            "`background` is required: a file of rows, such as background.csv in the model's folder. Or write a number"
            " for all absent features as `baseline`"
        )
    return background.uniform(config, rules.baseline or 0.0)
