"""Asks the model for the outputs of rows, in its own batches beside its callers."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np

from adapters.errors import DeadlineError
from adapters.tensors import Inference, RequestedOutput, Tensor
from runtimes.tensor.configuration.model_config import ModelConfig, TensorSpec
from runtimes.tensor.datatypes import DTYPES
from runtimes.tensor.explanations.explanation import Floats, numbers
from runtimes.tensor.interfaces import Array, Tensors
from runtimes.tensor.requests.open_request import tensor_of
from runtimes.tensor.scheduling.outlet import UnfinishedOutputs

MAX_BYTES: Final = 8 << 20
"""Bytes of the rows that are sent to the model at once."""


class Inferring(Protocol):
    """The scheduler of the model: see `models.served_model.ModelScheduler`."""

    def infer(self, inference: Inference, deadline: float) -> asyncio.Future[list[Tensor]]: ...


@dataclass(slots=True)
class RowCost:
    """What a request has used."""

    rows: int = 0
    seconds: float = 0.0


class RowRequests:
    """One batch of a request is computed at a time, so that callers of the model wait for one batch at most."""

    def __init__(self, config: ModelConfig, output: TensorSpec, scheduler: Inferring) -> None:
        self._config = config
        self._output = output
        self._scheduler = scheduler

    def batch(self, rows: Tensors) -> int:
        """The rows that are sent at once, of rows like these. Takes a while for many texts."""
        row = sum(_size(array) // max(1, len(array)) for array in rows.values())
        return max(1, min(self._config.max_batch_size, MAX_BYTES // max(1, row)))

    async def outputs(self, rows: Tensors, deadline: float, cost: RowCost) -> Floats:
        """The model's outputs for rows: [rows, numbers]. Adds to `cost`. Raises `InferenceError`."""
        count = len(next(iter(rows.values())))
        parts = []
        size = await asyncio.to_thread(self.batch, rows)
        for begin in range(0, count, size):
            part = {name: array[begin : begin + size] for name, array in rows.items()}
            sent = await asyncio.to_thread(self._inference, part)
            pending = self._scheduler.infer(sent, deadline)
            outputs = await within(deadline, pending)
            cost.seconds += getattr(pending, "device_seconds", 0.0)
            cost.rows += min(size, count - begin)
            parts.append(await asyncio.to_thread(numbers, outputs[0]))
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def _inference(self, rows: Tensors) -> Inference:
        return Inference(
            self._config.name,
            inputs=[
                tensor_of(spec.name, spec.datatype, np.ascontiguousarray(rows[spec.name], DTYPES[spec.datatype]))
                for spec in self._config.inputs
                if spec.name in rows
            ],
            outputs=[RequestedOutput(self._output.name)],
        )


def _size(array: Array) -> int:
    """The bytes of an input; of texts, their own beside those of the pointers to them."""
    return array.nbytes + (sum(map(len, array.ravel().tolist())) if array.dtype.hasobject else 0)


async def within(deadline: float, pending: asyncio.Future[list[Tensor]]) -> list[Tensor]:
    """The outputs of a request, or `DeadlineError` at its deadline, which withdraws it."""
    try:
        async with asyncio.timeout_at(deadline):
            outputs = await pending
            return await outputs.finished() if isinstance(outputs, UnfinishedOutputs) else outputs
    except TimeoutError:
        raise late() from None


def late() -> DeadlineError:
    """The error of an explanation without time for its least part."""
    return DeadlineError("The time for the explanation has ended.")
