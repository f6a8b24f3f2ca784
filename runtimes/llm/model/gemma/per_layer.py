"""Per-layer embeddings, as in Gemma 3n and 4: a token's numbers for each layer, which gate what the layer adds last.

No paper has them; the source is transformers' Gemma3nTextModel. T is the number of tokens in a step, L of layers.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn import functional

from runtimes.llm.model.matrix import Weight, embedding, linear
from runtimes.llm.model.shapes.gemma import PerLayerShape

if TYPE_CHECKING:
    from runtimes.llm.model.model_config import ModelShape

TABLE = "model.embed_tokens_per_layer.weight"


@dataclass(frozen=True, slots=True)
class PerLayerRows:
    """`table` is [vocabulary, L × size]. `projection` [L × size, hidden] reads the embedding, `norm` [size] is
    float32."""

    table: Weight
    projection: Weight
    norm: Tensor

    def of(self, token_ids: Tensor, embedded: Tensor, config: "ModelShape") -> Tensor:
        """[T] tokens, embedded as [T, hidden] → [T, L, size]."""
        shape = config.per_layer
        assert shape is not None
        listed = torch.where(token_ids < shape.vocab_size, token_ids, 0)
        own = embedding(listed, self.table) * float(torch.tensor(shape.size**0.5, dtype=embedded.dtype))
        given = (linear(embedded, self.projection) * config.hidden_size**-0.5).unflatten(1, (-1, shape.size))
        normed = functional.rms_norm(given.float(), self.norm.shape, self.norm, config.rms_norm_eps).to(given.dtype)
        return (normed + own.unflatten(1, (-1, shape.size))) * 2**-0.5


@dataclass(frozen=True, slots=True)
class PerLayer:
    """A layer's: `gate` is [size, hidden], `projection` [hidden, size], `norm` [hidden], float32."""

    gate: Weight
    projection: Weight
    norm: Tensor


def read_rows(
    config: "ModelShape", shape: PerLayerShape, tensor: Callable[[str, tuple[int, ...]], Any]
) -> PerLayerRows:
    width = config.num_layers * shape.size
    return PerLayerRows(
        table=tensor(TABLE, (shape.vocab_size, width)),
        projection=tensor("model.per_layer_model_projection.weight", (width, config.hidden_size)),
        norm=tensor("model.per_layer_projection_norm.weight", (shape.size,)),
    )


def read_per_layer(config: "ModelShape", shape: PerLayerShape, read: Callable[..., Any]) -> PerLayer:
    """`read(name, *sizes)` returns the layer's tensor of that name and shape."""
    return PerLayer(
        gate=read("per_layer_input_gate.weight", shape.size, config.hidden_size),
        projection=read("per_layer_projection.weight", config.hidden_size, shape.size),
        norm=read("post_per_layer_input_norm.weight", config.hidden_size),
    )


def gated(layer: PerLayer, hidden: Tensor, rows: Tensor, activation: Callable[[Tensor], Tensor], eps: float) -> Tensor:
    """What a layer adds last: [T, hidden], [T, size] → [T, hidden]."""
    given = linear(activation(linear(hidden, layer.gate)) * rows, layer.projection)
    return functional.rms_norm(given.float(), layer.norm.shape, layer.norm, eps).to(given.dtype)
