"""Encoders, which attend to a whole text at once and represent its meaning.

BERT (Devlin et al. 2019, https://arxiv.org/abs/1810.04805) and RoBERTa, on which MiniLM, bge, e5 and most other
embedding models are based, and those after them, which turn queries and keys or have a gate (encoder_families.py). T is
the number of tokens in a step; texts are concatenated without padding. Matrices are [out, in]; queries, keys and values
are one matrix.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby

import torch
from torch import Tensor
from torch.nn import functional

from runtimes.llm.model.encoder_config import EncoderConfig
from runtimes.llm.model.matrix import Weight, concatenated, linear
from runtimes.llm.model.rope import rotary_tables, rotated
from runtimes.llm.sequence import Chunk

TensorSource = Callable[[str, tuple[int, ...]], Weight]
"""The weight of that name, which must have that shape, in the dtype and on the device to compute with."""

_ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu": functional.gelu,
    "gelu_tanh": lambda rows: functional.gelu(rows, approximate="tanh"),
    "relu": functional.relu,
    "silu": functional.silu,
}


@dataclass(frozen=True, slots=True)
class _Linear:
    weight: Weight
    bias: Tensor | None

    def __call__(self, rows: Tensor) -> Tensor:
        return linear(rows, self.weight, self.bias)


@dataclass(frozen=True, slots=True)
class _Norm:
    weight: Tensor
    bias: Tensor | None
    eps: float

    def __call__(self, rows: Tensor) -> Tensor:
        return functional.layer_norm(rows, self.weight.shape, self.weight, self.bias, self.eps)


@dataclass(frozen=True, slots=True)
class _Layer:
    kind: int
    qkv: _Linear
    attention_out: _Linear
    attention_norm: _Norm | None
    gate: _Linear | None
    up: _Linear
    down: _Linear
    norm: _Norm


class Encoder:
    """An executor of hidden states alone, without a cache: a chunk is a whole text."""

    def __init__(self, config: EncoderConfig, tensor: TensorSource) -> None:
        self.config = config
        read = _Reader(config, tensor)
        hidden = config.hidden_size
        self._words = read.plain("embeddings.word_embeddings.weight", config.vocab_size, hidden)
        self._places: Tensor | None = None
        if not config.ropes:
            places = read.plain("embeddings.position_embeddings.weight", config.num_positions, hidden)
            self._places = places[config.first_position :]
        self._types: Tensor | None = None
        if config.num_types:
            self._types = read.plain("embeddings.token_type_embeddings.weight", config.num_types, hidden)
        self._turns = [rotary_tables(rope, config.num_positions, self._words.device) for rope in config.ropes]
        self._norm = read.norm("embeddings.LayerNorm")
        self._layers = [read.layer(index) for index in range(config.num_layers)]
        self._last_norm = read.norm("final_norm") if config.pre_norms else None
        biases = (config.buckets, config.num_heads)
        self._distances = read.plain("encoder.relative_attention_bias.weight", *biases) if config.buckets else None
        self._activation = _ACTIVATIONS[config.activation]

    @torch.inference_mode()  # type: ignore[untyped-decorator]
    def hidden(self, chunks: Sequence[Chunk]) -> Tensor:
        """Hidden states of the last layer, [T, hidden], float32. Each chunk is a whole text."""
        order = sorted(range(len(chunks)), key=lambda i: len(chunks[i].token_ids))
        texts = [chunks[i].token_ids for i in order]
        device = self._words.device
        token_ids = torch.tensor([token for text in texts for token in text], device=device)
        positions = torch.cat([torch.arange(len(text), device=device) for text in texts])
        alike = [(len(list(group)), length) for length, group in groupby(map(len, texts))]
        types = self._types_of([chunks[i] for i in order])
        states = self._forward(token_ids, positions, types, alike).float().split([len(text) for text in texts])
        places = sorted(range(len(order)), key=order.__getitem__)
        return torch.cat([states[place] for place in places])

    def _types_of(self, chunks: Sequence[Chunk]) -> Tensor | None:
        """What the place in a pair adds to each token: [T, hidden], or [hidden] if all texts are alone."""
        if self._types is None:
            return None
        if len(self._types) < 2 or all(chunk.second_part is None for chunk in chunks):
            return self._types[0]
        kinds: list[int] = []
        for chunk in chunks:
            first = len(chunk.token_ids) if chunk.second_part is None else chunk.second_part
            kinds += [0] * first + [1] * (len(chunk.token_ids) - first)
        return self._types[torch.tensor(kinds, device=self._types.device)]

    def _forward(
        self, token_ids: Tensor, positions: Tensor, types: Tensor | None, alike: list[tuple[int, int]]
    ) -> Tensor:
        """`alike` lists runs of consecutive texts of one length, as number and length: [T] → [T, hidden]."""
        hidden = self._words[token_ids]
        if self._places is not None:
            hidden = hidden + self._places[positions]
        hidden = self._norm(hidden if types is None else hidden + types)
        turns = [(cos[positions][:, None], sin[positions][:, None]) for cos, sin in self._turns]
        masks = [[self._mask(length, window) for _, length in alike] for window in self.config.windows]
        for layer in self._layers:
            normed = hidden
            if self.config.pre_norms and layer.attention_norm is not None:
                normed = layer.attention_norm(hidden)
            query, key, value = layer.qkv(normed).view(len(hidden), 3, self.config.num_heads, -1).unbind(1)
            if turns:
                query, key = (rotated(heads, *turns[layer.kind]) for heads in (query, key))
            attended = layer.attention_out(_attended(query, key, value, alike, masks[layer.kind]))
            if self.config.pre_norms or layer.attention_norm is None:
                hidden = hidden + attended
                hidden = hidden + self._mlp(layer, layer.norm(hidden))
            else:
                hidden = layer.attention_norm(hidden + attended)
                hidden = layer.norm(hidden + self._mlp(layer, hidden))
        return hidden if self._last_norm is None else self._last_norm(hidden)

    def _mlp(self, layer: _Layer, rows: Tensor) -> Tensor:
        if layer.gate is None:
            return layer.down(self._activation(layer.up(rows)))
        return layer.down(self._activation(layer.gate(rows)) * layer.up(rows))

    def _mask(self, length: int, window: int | None) -> Tensor | None:
        """What is added to scores of texts of `length`, or where their tokens look: [heads or 1, length, length]."""
        if self._distances is None and (window is None or window >= length):
            return None
        places = torch.arange(length, device=self._words.device)
        apart = places - places[:, None]
        if self._distances is None:
            return (apart.abs() <= window)[None]
        return self._distances[_bucket(apart, self.config.buckets)].permute(2, 0, 1)


def _bucket(apart: Tensor, buckets: int, most: int = 128) -> Tensor:
    """T5's buckets of distances (Raffel et al. 2020, https://arxiv.org/abs/1910.10683): half of them before and half
    after, of these half for one distance each, and the others for more and more, up to `most`."""
    half = buckets // 2
    single, far = half // 2, apart.abs()
    later = single + (torch.log(far.float() / single) / math.log(most / single) * (half - single)).long()
    return (apart > 0) * half + torch.where(far < single, far, later.clamp(max=half - 1))


def _attended(
    query: Tensor, key: Tensor, value: Tensor, alike: list[tuple[int, int]], masks: list[Tensor | None]
) -> Tensor:
    """Every token attends to its text: three [T, heads, size] → [T, heads × size]. Texts of one length at once."""
    outputs, first = [], 0
    for (count, length), mask in zip(alike, masks, strict=True):
        q, k, v = (
            rows[first : first + count * length].unflatten(0, (count, length)).transpose(1, 2)
            for rows in (query, key, value)
        )
        attended = functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        outputs.append(attended.transpose(1, 2).reshape(count * length, -1))
        first += count * length
    return torch.cat(outputs)


class _Reader:
    """Reads parts of the model from its tensors."""

    def __init__(self, config: EncoderConfig, tensor: TensorSource) -> None:
        self._config = config
        self._tensor = tensor

    def layer(self, index: int) -> _Layer:
        config, name = self._config, f"encoder.layer.{index}"
        hidden, inner, bias = config.hidden_size, config.intermediate_size, config.attention_bias
        qkv = [self.linear(f"{name}.attention.self.{part}", hidden, hidden, bias) for part in ("query", "key", "value")]
        biases = [part.bias for part in qkv if part.bias is not None]
        # The first norm of ModernBERT is that of its embeddings.
        normed = not (config.pre_norms and index == 0)
        return _Layer(
            kind=config.kind(index),
            qkv=_Linear(concatenated([part.weight for part in qkv]), torch.cat(biases) if biases else None),
            attention_out=self.linear(f"{name}.attention.output.dense", hidden, hidden, bias),
            attention_norm=self.norm(f"{name}.attention.output.LayerNorm") if normed else None,
            gate=self.linear(f"{name}.intermediate.gate", inner, hidden, config.up_bias) if config.gated else None,
            up=self.linear(f"{name}.intermediate.dense", inner, hidden, config.up_bias),
            down=self.linear(f"{name}.output.dense", hidden, inner, config.down_bias),
            norm=self.norm(f"{name}.output.LayerNorm"),
        )

    def linear(self, name: str, rows: int, columns: int, biased: bool) -> _Linear:
        bias = self.plain(f"{name}.bias", rows) if biased else None
        return _Linear(self._tensor(f"{name}.weight", (rows, columns)), bias)

    def norm(self, name: str) -> _Norm:
        size = self._config.hidden_size
        bias = self.plain(f"{name}.bias", size) if self._config.norm_bias else None
        return _Norm(self.plain(f"{name}.weight", size), bias, self._config.layer_norm_eps)

    def plain(self, name: str, *shape: int) -> Tensor:
        weight = self._tensor(name, shape)
        assert isinstance(weight, Tensor)  # only matrices of layers are quantized
        return weight
