"""The layers of an encoder: their weights, and what they compute.

Shapes: T tokens in a step, whose texts are concatenated without padding; H query heads and K heads of keys and values,
of D numbers each. Matrices are [out, in]; queries, keys and values are one matrix.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from runtimes.llm.model.encoders.config import EncoderConfig
from runtimes.llm.model.encoders.disentangled import DistanceVectors
from runtimes.llm.model.matrix import Weight, concatenated, linear

TensorSource = Callable[[str, tuple[int, ...]], Weight]
"""The weight of that name, which must have that shape, in the dtype and on the device to compute with."""
Attend = Callable[[Tensor, Tensor, Tensor, DistanceVectors | None], Tensor]
"""The attention of one kind of layers: queries [T, H, D], keys and values [T, K, D] → [T, H × D]."""

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu": functional.gelu,
    "gelu_tanh": lambda rows: functional.gelu(rows, approximate="tanh"),
    "relu": functional.relu,
    "silu": functional.silu,
}


@dataclass(frozen=True, slots=True)
class Linear:
    weight: Weight
    bias: Tensor | None

    def __call__(self, rows: Tensor) -> Tensor:
        return linear(rows, self.weight, self.bias)


@dataclass(frozen=True, slots=True)
class Norm:
    """A norm over the last dimension; the root mean square's is in float32."""

    weight: Tensor
    bias: Tensor | None
    eps: float
    squares: bool = False

    def __call__(self, rows: Tensor) -> Tensor:
        if self.squares:
            return functional.rms_norm(rows.float(), self.weight.shape, self.weight, self.eps).to(rows.dtype)
        return functional.layer_norm(rows, self.weight.shape, self.weight, self.bias, self.eps)


@dataclass(frozen=True, slots=True)
class EncoderLayer:
    """The norms are after attention and MLP, and of the sums; or before both. `attention_post_norm` and
    `mlp_post_norm` are then of what attention and MLP add."""

    kind: int
    heads: tuple[int, int]
    qkv: Linear
    query_norm: Norm | None
    key_norm: Norm | None
    distances: DistanceVectors | None
    attention_out: Linear
    attention_norm: Norm | None
    attention_post_norm: Norm | None
    gate: Linear | None
    up: Linear
    down: Linear
    norm: Norm
    mlp_post_norm: Norm | None
    activation: Callable[[Tensor], Tensor]
    pre_norms: bool

    def forward(self, hidden: Tensor, attend: Attend) -> Tensor:
        """[T, hidden] → [T, hidden]."""
        if not self.pre_norms and self.attention_norm is not None:
            hidden = self.attention_norm(hidden + self._attention(hidden, attend))
            return self.norm(hidden + self._mlp(hidden))
        attended = self._attention(hidden if self.attention_norm is None else self.attention_norm(hidden), attend)
        hidden = hidden + (attended if self.attention_post_norm is None else self.attention_post_norm(attended))
        added = self._mlp(self.norm(hidden))
        return hidden + (added if self.mlp_post_norm is None else self.mlp_post_norm(added))

    def _attention(self, rows: Tensor, attend: Attend) -> Tensor:
        heads, key_heads = self.heads
        every = self.qkv(rows).unflatten(-1, (heads + 2 * key_heads, -1))
        query, key, value = every.split([heads, key_heads, key_heads], dim=1)
        query = query if self.query_norm is None else self.query_norm(query)
        key = key if self.key_norm is None else self.key_norm(key)
        return self.attention_out(attend(query, key, value, self.distances))

    def _mlp(self, rows: Tensor) -> Tensor:
        if self.gate is None:
            return self.down(self.activation(self.up(rows)))
        return self.down(self.activation(self.gate(rows)) * self.up(rows))


class LayerReader:
    """Reads parts of the model from its tensors."""

    def __init__(self, config: EncoderConfig, tensor: TensorSource) -> None:
        self._config = config
        self._tensor = tensor
        self._vectors: Tensor | None = None

    def layer(self, index: int) -> EncoderLayer:
        config, name = self._config, f"encoder.layer.{index}"
        hidden, inner, size = config.hidden_size, config.intermediate_size, config.head_dim
        queries = config.num_heads * size
        # The first norm of ModernBERT is that of its embeddings.
        normed = config.first_norm or index > 0
        return EncoderLayer(
            kind=config.kind(index),
            heads=(config.num_heads, config.num_kv_heads),
            qkv=self._qkv(f"{name}.attention.self"),
            query_norm=self.norm(f"{name}.attention.self.query_norm", size) if config.head_norms else None,
            key_norm=self.norm(f"{name}.attention.self.key_norm", size) if config.head_norms else None,
            distances=self._distances(f"{name}.attention.self"),
            attention_out=self.linear(f"{name}.attention.output.dense", hidden, queries, config.attention_bias),
            attention_norm=self.norm(f"{name}.attention.output.LayerNorm") if normed else None,
            attention_post_norm=self.norm(f"{name}.attention.output.post_norm") if config.post_norms else None,
            gate=self.linear(f"{name}.intermediate.gate", inner, hidden, config.up_bias) if config.gated else None,
            up=self.linear(f"{name}.intermediate.dense", inner, hidden, config.up_bias),
            down=self.linear(f"{name}.output.dense", hidden, inner, config.down_bias),
            norm=self.norm(f"{name}.output.LayerNorm"),
            mlp_post_norm=self.norm(f"{name}.output.post_norm") if config.post_norms else None,
            activation=ACTIVATIONS[config.activation],
            pre_norms=config.pre_norms,
        )

    def _qkv(self, name: str) -> Linear:
        config = self._config
        queries, keys = config.num_heads * config.head_dim, config.num_kv_heads * config.head_dim
        parts = [
            self.linear(f"{name}.{part}", rows, config.hidden_size, config.attention_bias)
            for part, rows in (("query", queries), ("key", keys), ("value", keys))
        ]
        biases = [part.bias for part in parts if part.bias is not None]
        return Linear(concatenated([part.weight for part in parts]), torch.cat(biases) if biases else None)

    def _distances(self, name: str) -> DistanceVectors | None:
        config, shape = self._config, self._config.disentangled
        if shape is None:
            return None
        if self._vectors is None:
            vectors = self.plain("encoder.relative_embeddings.weight", 2 * shape.span, config.hidden_size)
            self._vectors = self.norm("encoder.relative_norm")(vectors) if shape.normed else vectors

        def heads(part: str) -> Tensor:
            matrix = self.linear(f"{name}.{part}", config.hidden_size, config.hidden_size, True)
            return matrix(self._vectors).unflatten(-1, (config.num_heads, -1)).transpose(0, 1)

        keys, queries = ("key", "query") if shape.shared else ("distance_key", "distance_query")
        return DistanceVectors(heads(keys) if shape.keys else None, heads(queries) if shape.queries else None)

    def linear(self, name: str, rows: int, columns: int, biased: bool) -> Linear:
        bias = self.plain(f"{name}.bias", rows) if biased else None
        return Linear(self._tensor(f"{name}.weight", (rows, columns)), bias)

    def norm(self, name: str, size: int | None = None) -> Norm:
        """Of the hidden states, or of vectors of `size`."""
        config = self._config
        size = config.hidden_size if size is None else size
        weight = self.plain(f"{name}.weight", size)
        if config.square_norms:
            return Norm(weight.float() + config.norm_offset, None, config.layer_norm_eps, squares=True)
        bias = self.plain(f"{name}.bias", size) if config.norm_bias else None
        return Norm(weight, bias, config.layer_norm_eps)

    def plain(self, name: str, *shape: int) -> Tensor:
        weight = self._tensor(name, shape)
        assert isinstance(weight, Tensor)  # only matrices of layers are quantized
        return weight
