"""The head of a classifier: from the vector of a text, or of a pair, to the logits of its labels."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from runtimes.llm.model.classifier_config import ClassifierConfig, Function
from runtimes.llm.model.model_config import UnsupportedModel

_ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "tanh": torch.tanh,
    "relu": functional.relu,
    "gelu": functional.gelu,
    "gelu_new": lambda rows: functional.gelu(rows, approximate="tanh"),
    "gelu_pytorch_tanh": lambda rows: functional.gelu(rows, approximate="tanh"),
    "silu": functional.silu,
}
TensorOf = Callable[[str, tuple[int, ...]], Tensor]
"""The tensor of that name, which must have that shape, in float32 on the CPU."""


@dataclass(frozen=True, slots=True)
class _Dense:
    weight: Tensor
    bias: Tensor | None

    def __call__(self, rows: Tensor) -> Tensor:
        return functional.linear(rows, self.weight, self.bias)


class ClassifierHead:
    """The layers after the vector, in float32 on the CPU. They are few, whatever the model's own dtype."""

    def __init__(self, config: ClassifierConfig, hidden_size: int, tensor: TensorOf) -> None:
        layout = config.layout
        self._dense: _Dense | None = None
        self._norm: tuple[Tensor, Tensor | None] | None = None
        if layout.dense is not None:
            bias = tensor(f"{layout.dense}.bias", (hidden_size,)) if layout.dense_biased else None
            self._dense = _Dense(tensor(f"{layout.dense}.weight", (hidden_size, hidden_size)), bias)
        if layout.norm is not None:
            bias = tensor(f"{layout.norm}.bias", (hidden_size,)) if layout.norm_biased else None
            self._norm = tensor(f"{layout.norm}.weight", (hidden_size,)), bias
        if layout.activation not in _ACTIVATIONS:
            raise UnsupportedModel(
                f"classifier_activation {layout.activation!r} is not supported; these are: {', '.join(_ACTIVATIONS)}"
            )
        self._activation = _ACTIVATIONS[layout.activation]
        self._eps = layout.norm_eps
        count = len(config.labels)
        out_bias = tensor(f"{layout.out}.bias", (count,)) if layout.biased else None
        self._out = _Dense(tensor(f"{layout.out}.weight", (count, hidden_size)), out_bias)

    @torch.inference_mode()  # type: ignore[untyped-decorator]
    def logits(self, vectors: NDArray[np.float32]) -> NDArray[np.float32]:
        """[texts, hidden] → [texts, labels]."""
        rows = torch.from_numpy(vectors)
        if self._dense is not None:
            rows = self._activation(self._dense(rows))
        if self._norm is not None:
            weight, bias = self._norm
            rows = functional.layer_norm(rows, weight.shape, weight, bias, self._eps)
        logits: NDArray[np.float32] = self._out(rows).numpy()
        return logits


def applied(function: Function, logits: NDArray[np.float32]) -> NDArray[np.float64]:
    """[texts, labels] → the same shape. In float64, so that a logit far from zero is no overflow."""
    rows = logits.astype(np.float64)
    if function == "identity":
        return rows
    if function == "sigmoid":
        small = np.exp(-np.abs(rows))
        return np.where(rows >= 0, 1 / (1 + small), small / (1 + small))
    powers = np.exp(rows - rows.max(axis=-1, keepdims=True))
    shares: NDArray[np.float64] = powers / powers.sum(axis=-1, keepdims=True)
    return shares
