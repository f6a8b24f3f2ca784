"""Exact explanations of models of trees, which a copy of the model for explanations alone computes.

The copy has the outputs `SPECS`, a queue and batches of its own, and runs where the model would run: in a thread or a
process. A request for an explanation therefore never delays an answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

from adapters.errors import CallerError
from adapters.tensors import Inference
from runtimes.tensor.configuration.model_config import DynamicBatching, ModelConfig, ResponseCache, TensorSpec
from runtimes.tensor.explanations.explanation import BASE, OUTPUT, VALUES, Attributions, numbers, width_of
from runtimes.tensor.explanations.sampled import Inferring, within
from runtimes.tensor.interfaces import Instance


def explaining(config: ModelConfig) -> ModelConfig:
    """The configuration of a copy that explains."""
    outputs = (
        TensorSpec(VALUES, "FP64", (-1, width_of(config))),  # by target
        TensorSpec(BASE, "FP64", (-1,)),
        TensorSpec(OUTPUT, "FP64", (-1,)),
    )
    return replace(
        config,
        outputs=outputs,
        explains=True,
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

    method = "tree"

    def __init__(self, config: ModelConfig, explained: str, scheduler: Closing, instances: Sequence[Instance]) -> None:
        """`config` is the model's own. `explained` names what the values add up to."""
        assert config.explain is not None
        self.memory_bytes = sum(instance.report.memory_bytes for instance in instances)
        self._rules = config.explain
        self._explained = explained
        self._scheduler = scheduler
        self._instances = instances

    async def explain(self, inference: Inference, deadline: float) -> Attributions:
        """See `Explainer`."""
        rows = inference.inputs[0].shape[0] if inference.inputs and inference.inputs[0].shape else 0
        if rows > self._rules.budget:
            raise CallerError(f"The request has {rows} rows, and the budget of the model is {self._rules.budget}.")
        sent = Inference(inference.model_name, inputs=inference.inputs)
        pending = self._scheduler.infer(sent, deadline)
        values, base, output = await within(deadline, pending)
        targets = base.shape[1]
        made = Attributions(
            numbers(values).reshape(rows, targets, -1), numbers(base), numbers(output), self.method, self._explained,
            targets == 1, model_rows=rows, device_seconds=getattr(pending, "device_seconds", 0.0),
        )  # fmt: skip
        made.check()
        return made

    async def aclose(self) -> None:
        """See `Explainer`."""
        try:
            await self._scheduler.aclose()
        finally:
            for instance in self._instances:
                await instance.aclose()
