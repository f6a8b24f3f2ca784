"""Models whose weights are converted to smaller numbers at load, and compared with the original."""

from __future__ import annotations

import dataclasses
import logging
import math
import time
from typing import Final

import numpy as np

from runtimes.tensor.backends.registry import Loaded, backend, load_model
from runtimes.tensor.configuration.model_config import ModelConfig, Warmup, WarmupInput
from runtimes.tensor.datatypes import bf16_to_fp32
from runtimes.tensor.instances.runner import Runner
from runtimes.tensor.instances.worker import Job
from runtimes.tensor.interfaces import Array, Model, ModelFailed, ModelLoadError, Tensors
from runtimes.tensor.models.warmup import inputs_of

ROUNDS: Final = 5
VARIABLE: Final = 16
"""The length of a variable dimension in the measurement."""
log = logging.getLogger(__name__)


def loaded(job: Job) -> Loaded:
    """The job's model and, with `quantize`, the effect of quantization. Raises `ModelLoadError`."""
    kind = backend(job.backend)
    quantized = load_model(kind, job.config, job.folder, job.device)
    if not job.config.quantize or job.config.decoupled:
        return quantized
    original = load_model(kind, dataclasses.replace(job.config, quantize=""), job.folder, job.device).model
    try:
        facts = compared(original, quantized.model, job)
    except BaseException:
        quantized.model.close()
        raise
    finally:
        original.close()
    log.info("%s is quantized: %s", job.name, ", ".join(f"{name} {value}" for name, value in facts.items()))
    return Loaded(quantized.model, facts)


def compared(original: Model, quantized: Model, job: Job) -> dict[str, float | str]:
    """The largest and the mean difference of their outputs, and the ratio of their times."""
    config = job.config
    facts: dict[str, float | str] = {"to": config.quantize}
    inputs, rows = _sample(job)
    try:
        expected, before = _timed(Runner(config, original, log.debug), inputs, rows)
    except ModelFailed as error:
        return facts | {"unmeasured": f"the original fails on the sample, write a warm-up: {error}"}
    try:
        got, after = _timed(Runner(config, quantized, log.debug), inputs, rows)
    except ModelFailed as error:
        raise ModelLoadError(f"quantized to {config.quantize} the model fails: {error}") from None
    differences = [_difference(config, name, expected[name], got[name]) for name in expected]
    all_of_them = np.concatenate([difference for difference in differences if difference.size] or [np.zeros(1)])
    facts["max_abs_error"] = _rounded(float(all_of_them.max()))
    facts["mean_abs_error"] = _rounded(float(all_of_them.mean()))
    facts["latency_ratio"] = _rounded(after / before)
    return facts


def _sample(job: Job) -> tuple[Tensors, int]:
    """The first warm-up, else random numbers."""
    config = job.config
    warmup = config.warmup[0] if config.warmup else _random(config)
    return inputs_of(config, warmup, job.folder.parent)


def _random(config: ModelConfig) -> Warmup:
    inputs = tuple(
        WarmupInput(spec.name, spec.datatype, tuple(VARIABLE if dim == -1 else dim for dim in spec.dims), "random")
        for spec in config.inputs
    )
    return Warmup("quantize", min(config.max_batch_size, 4), inputs=inputs)


def _timed(runner: Runner, inputs: Tensors, rows: int) -> tuple[Tensors, float]:
    """The outputs of the model, and the shortest of a few times in seconds; the first is not counted."""
    outputs = runner.infer(inputs, rows)
    shortest = math.inf
    for _ in range(ROUNDS):
        started = time.perf_counter()
        runner.infer(inputs, rows)
        shortest = min(shortest, time.perf_counter() - started)
    return outputs, shortest


def _difference(config: ModelConfig, name: str, expected: Array, got: Array) -> Array:
    if expected.dtype.hasobject:
        return np.asarray(expected != got, np.float64).ravel()
    if expected.shape != got.shape:
        raise ModelLoadError(f"quantized to {config.quantize} the model's output `{name}` has another shape")
    spec = config.output(name)
    if spec is not None and spec.datatype == "BF16":
        expected, got = bf16_to_fp32(expected), bf16_to_fp32(got)
    difference: Array = np.abs(expected.astype(np.float64) - got.astype(np.float64)).ravel()
    return difference


def _rounded(value: float) -> float:
    return float(f"{value:.4g}")
