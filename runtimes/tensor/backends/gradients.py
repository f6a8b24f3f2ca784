"""Copies of networks of PyTorch that explain their answers by integrated gradients, of Captum.

The part of an element is the integral of the output's gradient along the straight line from a row of zeros
(Sundararajan, Taly and Yan, "Axiomatic attribution for deep networks", 2017). The output is the largest number of the
row's answer.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any, Final

import numpy as np
import torch

from config.installing import installing
from runtimes.tensor.configuration.model_config import ModelConfig, TensorSpec
from runtimes.tensor.datatypes import DTYPES
from runtimes.tensor.explanations.explanation import BASE, OUTPUT, STEPS, TARGET, VALUES, explained_output
from runtimes.tensor.interfaces import Array, ModelLoadError, Tensors

Compute = Callable[[dict[str, torch.Tensor]], torch.Tensor]
"""The output that is explained, of a batch of inputs: [rows, …]."""
_DIFFERENTIABLE: Final = ("FP32", "FP64")


class GradientModel:
    """Has the outputs of `explanations.exact`, and `target`. Raises `ModelLoadError` for a model without gradients."""

    def __init__(
        self, config: ModelConfig, compute: Compute, tensor: Callable[[str, Array], torch.Tensor],
        close: Callable[[], None],
    ) -> None:  # fmt: skip
        """`tensor` makes the model's input of an array, and `close` ends the model."""
        try:
            from captum.attr import IntegratedGradients
        except ModuleNotFoundError:
            raise ModelLoadError(f"gradients need captum, which is not installed: {installing('gradients')}") from None
        self._specs = [spec for spec in config.inputs if not spec.optional]
        self._moved = [spec.name for spec in self._specs if spec.datatype in _DIFFERENTIABLE]
        self._compute = compute
        self._most = max(1, config.max_batch_size)
        """The rows that the model takes at once, steps included."""
        self._tensor = tensor
        self._close = close
        self._gradients: Any = IntegratedGradients
        self._try()

    def infer(self, inputs: Tensors) -> dict[str, Array]:
        given = {name: self._tensor(name, array) for name, array in inputs.items()}
        with torch.no_grad():
            answer = self._compute(given).flatten(1)
        target = answer.argmax(dim=1)

        def chosen(*moved: torch.Tensor) -> torch.Tensor:
            """The target of each row; Captum repeats the rows for each step."""
            times = len(moved[0]) // len(target)
            rest = {
                name: value.repeat(times, *[1] * (value.dim() - 1))
                for name, value in given.items()
                if name not in self._moved
            }
            outputs = self._compute({**rest, **dict(zip(self._moved, moved, strict=True))}).flatten(1)
            return outputs.gather(1, target.repeat(times)[:, None])[:, 0]

        moved = tuple(given[name] for name in self._moved)
        zeros = tuple(torch.zeros_like(value) for value in moved)
        with torch.enable_grad():
            parts = self._gradients(chosen).attribute(
                moved, baselines=zeros, n_steps=STEPS, internal_batch_size=self._most
            )
        with torch.no_grad():
            base = chosen(*zeros)
        values = self._flat(dict(zip(self._moved, parts, strict=True)), len(target))
        output = answer.gather(1, target[:, None])
        return {
            VALUES: values[:, None], BASE: _array(base)[:, None], OUTPUT: _array(output),
            TARGET: _array(target)[:, None],
        }  # fmt: skip

    def close(self) -> None:
        self._close()

    def _flat(self, parts: dict[str, torch.Tensor], rows: int) -> Array:
        """The parts of all inputs in their order; zeros for those that are no numbers with a point."""
        columns = [
            _array(parts[spec.name]).reshape(rows, -1) if spec.name in parts else np.zeros((rows, prod(spec.dims)))
            for spec in self._specs
        ]
        return np.concatenate(columns, axis=1)

    def _try(self) -> None:
        if not self._moved:
            raise ModelLoadError("the model has no input of FP32 or FP64, whose gradients would explain it")
        rows = {spec.name: _ones(spec) for spec in self._specs}
        try:
            self.infer(rows)
        except Exception as error:
            raise ModelLoadError(f"the model has no gradients: {type(error).__name__}: {error}"[:400]) from error


def _ones(spec: TensorSpec) -> Array:
    if -1 in spec.dims:
        raise ModelLoadError(f"the input `{spec.name}` has dimensions of any length, which are not explained")
    return np.ones((1, *spec.dims), DTYPES[spec.datatype])


def _array(tensor: torch.Tensor) -> Array:
    array: Array = tensor.detach().cpu().numpy()
    return array.astype(np.int64 if array.dtype.kind == "i" else np.float64)


def compute_of(
    config: ModelConfig, call: Callable[[dict[str, torch.Tensor]], Any], named: Callable[[Any], Any]
) -> Compute:
    """The function of the output that is explained. `named` has the tensors of an answer by name."""
    output = explained_output(config)
    if output is None:
        raise ModelLoadError("the model has no output of numbers")

    def compute(inputs: dict[str, torch.Tensor]) -> torch.Tensor:
        answer: torch.Tensor = named(call(inputs))[output.name]
        return answer.reshape(len(answer), -1)

    return compute
