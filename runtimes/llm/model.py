"""The Llama family: Llama 1 to 3, SmolLM2 and whatever else shares their layers, as `ModelConfig` says.

RMSNorm, rotary positions, grouped-query attention, SwiGLU (Touvron et al. 2023,
https://arxiv.org/abs/2302.13971). Matrices are [out, in]; queries, keys and values are one matrix, gate and up
another: fewer and larger products. T is the number of tokens in a step.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from runtimes.llm.attention import KVCache, Layout, paged_attention
from runtimes.llm.model_config import ModelConfig
from runtimes.llm.rope import rotary_tables, rotated
from runtimes.llm.weights import Weight, concatenated, embedding, linear


@dataclass(frozen=True, slots=True)
class _Layer:
    attention_norm: Tensor
    qkv: Weight
    attention_out: Weight
    mlp_norm: Tensor
    gate_up: Weight
    down: Weight


TensorSource = Callable[[str, tuple[int, ...]], Any]


class Llama:
    """A decoder-only transformer whose keys and values live in a paged cache.

    `tensor(name, shape)` gives the weight of that Hugging Face name, which must have that shape, in the dtype
    and on the device to compute with.
    """

    def __init__(self, config: ModelConfig, tensor: TensorSource) -> None:
        self.config = config
        vocabulary = (config.vocab_size, config.hidden_size)
        self.embedding = tensor("model.embed_tokens.weight", vocabulary)
        self.dtype: torch.dtype = self.embedding.dtype
        self.device: torch.device = self.embedding.device
        self.layers = [_layer(config, tensor, index) for index in range(config.num_layers)]
        self.norm = tensor("model.norm.weight", (config.hidden_size,))
        self.head = self.embedding if config.tie_word_embeddings else tensor("lm_head.weight", vocabulary)
        self._cos, self._sin = rotary_tables(
            config.head_dim, config.context_length, config.rope_theta, config.rope_factors, self.device
        )

    @property
    def kv_bytes_per_token(self) -> int:
        """Cache memory of one position, all layers together."""
        size: int = self.dtype.itemsize
        return 2 * self.config.num_layers * self.config.num_kv_heads * self.config.head_dim * size

    def forward(self, token_ids: Tensor, positions: Tensor, cache: KVCache, layout: Layout) -> Tensor:
        """Hidden states [T, hidden] of `token_ids` [T] at `positions` [T]; writes their keys and values."""
        config = self.config
        hidden = embedding(token_ids, self.embedding)
        cos, sin = self._cos[positions][:, None], self._sin[positions][:, None]
        heads = [config.num_heads, config.num_kv_heads, config.num_kv_heads]
        for index, layer in enumerate(self.layers):
            qkv = linear(self._normed(hidden, layer.attention_norm), layer.qkv)
            query, key, value = qkv.view(len(hidden), -1, config.head_dim).split(heads, dim=1)
            query, key = rotated(query, cos, sin), rotated(key, cos, sin)
            attended = paged_attention(query, key, value, cache.keys[index], cache.values[index], layout)
            hidden = hidden + linear(attended.flatten(1), layer.attention_out)
            gate, up = linear(self._normed(hidden, layer.mlp_norm), layer.gate_up).chunk(2, dim=-1)
            hidden = hidden + linear(functional.silu(gate) * up, layer.down)
        return self._normed(hidden, self.norm)

    def logits(self, hidden: Tensor) -> Tensor:
        """[rows, hidden] → [rows, vocab]."""
        return linear(hidden, self.head)

    def _normed(self, hidden: Tensor, weight: Tensor) -> Tensor:
        return functional.rms_norm(hidden, weight.shape, weight, self.config.rms_norm_eps)


def _layer(config: ModelConfig, tensor: TensorSource, index: int) -> _Layer:
    hidden, inner = config.hidden_size, config.intermediate_size
    query, key = config.num_heads * config.head_dim, config.num_kv_heads * config.head_dim

    def weight(name: str, *shape: int) -> Any:
        return tensor(f"model.layers.{index}.{name}.weight", shape)

    return _Layer(
        attention_norm=weight("input_layernorm", hidden),
        qkv=concatenated(
            [
                weight("self_attn.q_proj", query, hidden),
                weight("self_attn.k_proj", key, hidden),
                weight("self_attn.v_proj", key, hidden),
            ]
        ),
        attention_out=weight("self_attn.o_proj", hidden, query),
        mlp_norm=weight("post_attention_layernorm", hidden),
        gate_up=concatenated([weight("mlp.gate_proj", inner, hidden), weight("mlp.up_proj", inner, hidden)]),
        down=weight("mlp.down_proj", hidden, inner),
    )
