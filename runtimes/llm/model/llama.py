"""The Llama family: Llama 1 to 3, SmolLM2, Mistral, Qwen 2 to 3, Gemma 2 and 3, Phi-3, as `ModelShape` describes.

RMSNorm, rotary positions, grouped-query attention, a gated MLP (Touvron et al. 2023, https://arxiv.org/abs/2302.13971),
and the additions of the others: biases, norms of queries and keys (Qwen 3), norms after attention and MLP, soft caps,
windows (Gemma Team 2024, https://arxiv.org/abs/2408.00118). Matrices are [out, in]; queries, keys and values are one
matrix, gate and up another: fewer and larger products. T is the number of tokens in a step.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from runtimes.llm.model.attention import Attention, KVCache, ScoreOptions
from runtimes.llm.model.matrix import Weight, concatenated, embedding, linear
from runtimes.llm.model.model_config import ModelShape
from runtimes.llm.model.rope import rotary_tables, rotated


@dataclass(frozen=True, slots=True)
class Layer:
    """One layer's weights; None for weights that the model does not have. Norms are float32."""

    kind: int
    attention_norm: Tensor
    qkv: Weight
    qkv_bias: Tensor | None
    query_norm: Tensor | None
    key_norm: Tensor | None
    attention_out: Weight
    attention_out_bias: Tensor | None
    attention_post_norm: Tensor | None
    mlp_norm: Tensor
    gate_up: Weight
    gate_up_bias: Tensor | None
    down: Weight
    down_bias: Tensor | None
    mlp_post_norm: Tensor | None


TensorSource = Callable[[str, tuple[int, ...]], Any]
Turn = tuple[Tensor, Tensor]
"""Cosine and sine of positions' angles."""


class Llama:
    """A decoder-only transformer whose keys and values are in a paged cache.

    `tensor(name, shape)` returns the weight of that Hugging Face name, which must have that shape, on the device to
    compute with: a matrix in the dtype to compute with, a vector in float32.
    """

    def __init__(self, config: ModelShape, tensor: TensorSource) -> None:
        self.config = config
        vocabulary = (config.vocab_size, config.hidden_size)
        self.embedding = tensor("model.embed_tokens.weight", vocabulary)
        self.dtype: torch.dtype = self.embedding.dtype
        self.device: torch.device = self.embedding.device
        # As it was in training, where it was a number of the weights' dtype.
        self.embedding_multiplier = float(torch.tensor(config.embedding_multiplier, dtype=self.dtype))
        self.scores = [
            ScoreOptions(kind.window, config.attention_scale, config.attention_soft_cap) for kind in config.kinds
        ]
        self.layers = [_layer(config, tensor, index, self.dtype) for index in range(config.num_layers)]
        self.norm = tensor("model.norm.weight", (config.hidden_size,))
        self.head = self.embedding if config.tie_word_embeddings else tensor("lm_head.weight", vocabulary)

    @property
    def kv_bytes_per_token(self) -> int:
        """Cache memory of one position, all layers together."""
        size: int = self.dtype.itemsize
        return 2 * self.config.num_layers * self.config.num_kv_heads * self.config.head_dim * size

    def rotary(self, context_length: int) -> list[Turn]:
        """By kind of layer: cosine and sine of every position, each [context, turned dimensions / 2], float32."""
        return [rotary_tables(kind.rope, context_length, self.device) for kind in self.config.kinds]

    def forward(
        self, token_ids: Tensor, positions: Tensor, rotary: Sequence[Turn], cache: KVCache, layout: Attention
    ) -> Tensor:
        """Hidden states [T, hidden] of `token_ids` [T] at `positions` [T]; writes their keys and values."""
        hidden = embedding(token_ids, self.embedding)
        if self.embedding_multiplier != 1:
            hidden = hidden * self.embedding_multiplier
        turns = [(cos[positions][:, None], sin[positions][:, None]) for cos, sin in rotary]
        for index, layer in enumerate(self.layers):
            normed = self._normed(hidden, layer.attention_norm)
            attended = self._attention(layer, normed, turns[layer.kind], cache, index, layout)
            hidden = hidden + self._normed(attended, layer.attention_post_norm)
            given = self._mlp(layer, self._normed(hidden, layer.mlp_norm))
            hidden = hidden + self._normed(given, layer.mlp_post_norm)
        return self._normed(hidden, self.norm)

    def logits(self, hidden: Tensor) -> Tensor:
        """[rows, hidden] → [rows, vocab]."""
        logits = linear(hidden, self.head)
        cap = self.config.logits_soft_cap
        return logits if cap is None else torch.tanh(logits.float() / cap) * cap

    def _attention(
        self, layer: Layer, normed: Tensor, turn: Turn, cache: KVCache, index: int, layout: Attention
    ) -> Tensor:
        config = self.config
        heads = [config.num_heads, config.num_kv_heads, config.num_kv_heads]
        qkv = linear(normed, layer.qkv, layer.qkv_bias)
        query, key, value = qkv.view(len(normed), -1, config.head_dim).split(heads, dim=1)
        attended = layout.attend(
            rotated(self._normed(query, layer.query_norm), *turn),
            rotated(self._normed(key, layer.key_norm), *turn),
            value,
            cache.keys[index],
            cache.values[index],
            self.scores[layer.kind],
        )
        return linear(attended.flatten(1), layer.attention_out, layer.attention_out_bias)

    def _mlp(self, layer: Layer, normed: Tensor) -> Tensor:
        gate, up = linear(normed, layer.gate_up, layer.gate_up_bias).chunk(2, dim=-1)
        silu = self.config.activation == "silu"
        active = functional.silu(gate) if silu else functional.gelu(gate, approximate="tanh")
        return linear(active * up, layer.down, layer.down_bias)

    def _normed(self, x: Tensor, weight: Tensor | None) -> Tensor:
        if weight is None:
            return x
        return functional.rms_norm(x.float(), weight.shape, weight, self.config.rms_norm_eps).to(x.dtype)


def _layer(config: ModelShape, tensor: TensorSource, index: int, dtype: torch.dtype) -> Layer:
    hidden, inner = config.hidden_size, config.intermediate_size
    query, key = config.num_heads * config.head_dim, config.num_kv_heads * config.head_dim
    qkv = [("self_attn.q_proj", query), ("self_attn.k_proj", key), ("self_attn.v_proj", key)]
    gate_up = [("mlp.gate_proj", inner), ("mlp.up_proj", inner)]
    if config.fused_projections:
        qkv, gate_up = [("self_attn.qkv_proj", query + 2 * key)], [("mlp.gate_up_proj", 2 * inner)]
    before_mlp = "pre_feedforward_layernorm" if config.post_norms else "post_attention_layernorm"

    def matrix(parts: Sequence[tuple[str, int]], columns: int) -> Weight:
        read = [tensor(f"model.layers.{index}.{name}.weight", (rows, columns)) for name, rows in parts]
        return concatenated(read) if len(read) > 1 else read[0]

    def bias(parts: Sequence[tuple[str, int]], present: bool) -> Tensor | None:
        if not present:
            return None
        return torch.cat([tensor(f"model.layers.{index}.{name}.bias", (rows,)) for name, rows in parts]).to(dtype)

    def norm(name: str, size: int) -> Any:
        return tensor(f"model.layers.{index}.{name}.weight", (size,))

    return Layer(
        kind=config.layer_kinds[index],
        attention_norm=norm("input_layernorm", hidden),
        qkv=matrix(qkv, hidden),
        qkv_bias=bias(qkv, config.qkv_bias),
        query_norm=norm("self_attn.q_norm", config.head_dim) if config.qk_norm else None,
        key_norm=norm("self_attn.k_norm", config.head_dim) if config.qk_norm else None,
        attention_out=matrix([("self_attn.o_proj", hidden)], query),
        attention_out_bias=bias([("self_attn.o_proj", hidden)], config.attention_out_bias),
        attention_post_norm=norm("post_attention_layernorm", hidden) if config.post_norms else None,
        mlp_norm=norm(before_mlp, hidden),
        gate_up=matrix(gate_up, hidden),
        gate_up_bias=bias(gate_up, config.mlp_bias),
        down=matrix([("mlp.down_proj", hidden)], inner),
        down_bias=bias([("mlp.down_proj", hidden)], config.mlp_bias),
        mlp_post_norm=norm("post_feedforward_layernorm", hidden) if config.post_norms else None,
    )
