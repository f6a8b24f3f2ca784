"""Layers between a text's vector and the vector that a client gets: `Dense` of sentence-transformers
(https://sbert.net/docs/package_reference/sentence_transformer/models.html#sentence_transformers.models.Dense)."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from runtimes.llm.model.embedding_config import DenseLayout

_ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "Identity": lambda rows: rows,
    "Tanh": torch.tanh,
    "ReLU": functional.relu,
    "GELU": functional.gelu,
    "SiLU": functional.silu,
    "Sigmoid": torch.sigmoid,
}
TensorOf = Callable[[DenseLayout, str, tuple[int, ...]], Tensor]
"""A layer's `weight` or `bias`, which must have that shape, in float32 on the CPU."""


@dataclass(frozen=True, slots=True)
class _Layer:
    weight: Tensor
    bias: Tensor | None
    activation: Callable[[Tensor], Tensor]


class DenseLayers:
    """Computed in float32 on the CPU, whatever the model's dtype: there is one row for a whole text."""

    def __init__(self, layouts: Sequence[DenseLayout], tensor: TensorOf) -> None:
        self._layers = [
            _Layer(
                tensor(layout, "weight", (layout.outputs, layout.inputs)),
                tensor(layout, "bias", (layout.outputs,)) if layout.biased else None,
                _ACTIVATIONS[layout.activation],
            )
            for layout in layouts
        ]
        self.products = sum(layout.inputs * layout.outputs for layout in layouts)
        """Products of numbers for one text."""

    @torch.inference_mode()  # type: ignore[untyped-decorator]
    def applied(self, vectors: NDArray[np.float32]) -> NDArray[np.float32]:
        """[texts, hidden] → [texts, outputs of the last layer]."""
        rows = torch.from_numpy(vectors)
        for layer in self._layers:
            rows = layer.activation(functional.linear(rows, layer.weight, layer.bias))
        outputs: NDArray[np.float32] = rows.numpy()
        return outputs
