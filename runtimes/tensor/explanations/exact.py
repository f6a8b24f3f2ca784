"""Explanations that a model computes itself, of trees or by gradients, in a copy of it for explanations alone.

The copy has outputs of its own, a queue and batches of its own, and runs where the model would run: in a thread or a
process. A request for an explanation therefore never delays an answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

import numpy as np

from adapters.errors import CallerError, InferenceError
from adapters.tensors import Inference, Tensor
from runtimes.tensor.configuration.model_config import DynamicBatching, ModelConfig, ResponseCache, TensorSpec
from runtimes.tensor.explanations.explanation import (
    BASE,
    OUTPUT,
    STEPS,
    TARGET,
    VALUES,
    Attributions,
    check_size,
    numbers,
    width_of,
    zeros_of,
)
from runtimes.tensor.explanations.row_requests import Inferring, within
from runtimes.tensor.interfaces import Instance
from runtimes.tensor.requests.open_request import tensor_of


def explaining(config: ModelConfig, *, gradients: bool) -> ModelConfig:
    """The configuration of a copy that explains."""
    outputs: tuple[TensorSpec, ...] = (
        TensorSpec(VALUES, "FP64", (-1, width_of(config))),  # by target
        TensorSpec(BASE, "FP64", (-1,)),
        TensorSpec(OUTPUT, "FP64", (-1,)),
    )
    if gradients:
        outputs = (*outputs, TensorSpec(TARGET, "INT64", (1,)))
    return replace(
        config,
        outputs=outputs,
        explains=config.outputs,
        instance_groups=(replace(config.instance_groups[0], count=1),),
        dynamic_batching=DynamicBatching(),
        response_cache=ResponseCache(),
        warmup=(),
    )


class Closing(Inferring, Protocol):
    """A scheduler that can be closed."""

    async def aclose(self) -> None: ...


class ExactExplainer:
    """Owns the copies that explain, and their scheduler."""

    def __init__(
        self,
        config: ModelConfig,
        explained: str,
        scheduler: Closing,
        instances: Sequence[Instance],
        *,
        has_gradients: bool,
    ) -> None:
        """`config` is the model's own. `explained` names what the values add up to."""
        assert config.explain is not None
        self.memory_bytes = sum(instance.report.memory_bytes for instance in instances)
        self.method = "gradients" if has_gradients else "tree"
        self._config = config
        self._targets: int | None = 0 if has_gradients else None
        self._cost = STEPS if has_gradients else 1
        self._rules = config.explain
        self._explained = explained
        self._scheduler = scheduler
        self._instances = instances

    async def explain(self, inference: Inference, deadline: float) -> Attributions:
        """See `Explainer`."""
        rows = inference.inputs[0].shape[0] if inference.inputs and inference.inputs[0].shape else 0
        if (needed := rows * self._cost) > self._rules.budget:
            raise CallerError(
                f"The explanation of {rows} rows needs {needed} rows of the model, and the budget is"
                f" {self._rules.budget}: send fewer rows."
            )
        check_size(rows, await self.targets(deadline) or 1, width_of(self._config))
        sent = Inference(inference.model_name, inputs=inference.inputs)
        pending = self._scheduler.infer(sent, deadline)
        answer = await within(deadline, pending)
        seconds = getattr(pending, "device_seconds", 0.0)
        try:
            made = await asyncio.to_thread(self._made, answer, rows)
        except InferenceError as error:
            error.device_ms = seconds * 1000
            raise
        made.model_rows, made.device_seconds = needed, seconds
        return made

    async def targets(self, deadline: float) -> int | None:
        """See `Explainer`. Trees are asked once, by a row of zeros: their sums are no output of the configuration."""
        if self._targets is None:
            zeros = zeros_of(self._config)
            inputs = [tensor_of(spec.name, spec.datatype, zeros[spec.name]) for spec in self._config.inputs]
            answer = await within(
                deadline, self._scheduler.infer(Inference(self._config.name, inputs=inputs), deadline)
            )
            self._targets = answer[1].shape[1]
        return self._targets

    def _made(self, answer: Sequence[Tensor], rows: int) -> Attributions:
        """The answer of a copy, checked."""
        values, base, output, *target = answer
        targets = base.shape[1]
        made = Attributions(
            numbers(values).reshape(rows, targets, -1), numbers(base), numbers(output), self.method, self._explained,
            targets == 1,
        )  # fmt: skip
        if target:  # an integral of a few points: its error is in the answer
            made.targets = np.frombuffer(target[0].data, "<i8").copy()
            made.check_finite()
        else:
            made.check()
        return made

    async def aclose(self) -> None:
        """See `Explainer`."""
        try:
            await self._scheduler.aclose()
        finally:
            for instance in self._instances:
                await instance.aclose()
