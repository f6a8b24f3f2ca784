"""Encoders, which attend to a whole text at once and represent its meaning.

BERT (Devlin et al. 2019, https://arxiv.org/abs/1810.04805) and RoBERTa, on which MiniLM, bge, e5 and most other
embedding models are based, and those after them, which turn queries and keys or have a gate (families.py). T is
the number of tokens in a step; texts are concatenated without padding. layers.py has the layers.
"""

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

import torch
from torch import Tensor
from torch.nn import functional

from runtimes.llm.model.encoders.config import EncoderConfig
from runtimes.llm.model.encoders.disentangled import DistanceVectors, distance_classes, scale_of
from runtimes.llm.model.encoders.layers import Attend, LayerReader, TensorSource
from runtimes.llm.model.rope import rotary_tables, rotated
from runtimes.llm.sequence import Chunk


class Encoder:
    """An executor of hidden states alone, without a cache: a chunk is a whole text."""

    def __init__(self, config: EncoderConfig, tensor: TensorSource) -> None:
        self.config = config
        read = LayerReader(config, tensor)
        hidden = config.hidden_size if config.embedding_size is None else config.embedding_size
        self._words = read.plain("embeddings.word_embeddings.weight", config.vocab_size, hidden)
        self._scale = torch.tensor(config.embedding_scale, dtype=self._words.dtype).item()
        self._places: Tensor | None = None
        if config.has_place_vectors:
            places = read.plain("embeddings.position_embeddings.weight", config.num_positions, hidden)
            self._places = places[config.first_position :]
        self._types: Tensor | None = None
        if config.num_types:
            self._types = read.plain("embeddings.token_type_embeddings.weight", config.num_types, hidden)
        self._turns = [rotary_tables(rope, config.num_positions, self._words.device) for rope in config.ropes]
        self._norm = read.norm("embeddings.LayerNorm", hidden) if config.embedding_norm else None
        widened = config.embedding_size is not None
        self._widen = read.linear("embeddings.project", config.hidden_size, hidden, True) if widened else None
        order = config.stored_layers or range(config.num_layers)
        layers = {index: read.layer(index) for index in sorted({*order})}
        self._layers = [layers[index] for index in order]
        self._last_norm = read.norm("final_norm") if config.pre_norms else None
        biases = (config.buckets, config.num_heads)
        self._distances = read.plain("encoder.relative_attention_bias.weight", *biases) if config.buckets else None

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
        hidden = hidden if self._scale == 1 else hidden * self._scale
        if self._places is not None:
            hidden = hidden + self._places[positions]
        hidden = hidden if types is None else hidden + types
        hidden = hidden if self._norm is None else self._norm(hidden)
        hidden = hidden if self._widen is None else self._widen(hidden)
        attend = [self._attention(kind, positions, alike) for kind in range(len(self.config.windows))]
        for layer in self._layers:
            hidden = layer.forward(hidden, attend[layer.kind])
        return hidden if self._last_norm is None else self._last_norm(hidden)

    def _attention(self, kind: int, positions: Tensor, alike: list[tuple[int, int]]) -> Attend:
        """The attention of all layers of a kind in one step."""
        config = self.config
        masks = [self._mask(length, config.windows[kind]) for _, length in alike]
        scale = config.attention_scale
        if config.disentangled is not None:
            scale = scale_of(config.disentangled, config.head_dim)
        attend = functools.partial(_attended, _Step(alike, masks, scale))
        if not self._turns:
            return attend
        turns = [table[positions][:, None] for table in self._turns[kind]]
        return lambda query, key, *rest: attend(rotated(query, *turns), rotated(key, *turns), *rest)

    def _mask(self, length: int, window: int | None) -> Tensor | None:
        """What is added to scores of texts of `length`, or where their tokens look: [heads or 1, length, length]. Of a
        disentangled model, the classes of distances [length, length]."""
        if self.config.disentangled is not None:
            return distance_classes(length, self.config.disentangled, self._words.device)
        if self._distances is None and (window is None or window >= length):
            return None
        places = torch.arange(length, device=self._words.device)
        apart = places - places[:, None]
        if self._distances is None:
            assert window is not None
            return (apart.abs() <= window)[None]
        return self._distances[_bucket(apart, self.config.buckets, self.config.farthest)].permute(2, 0, 1)


def _bucket(apart: Tensor, buckets: int, most: int) -> Tensor:
    """T5's buckets of distances (Raffel et al. 2020, https://arxiv.org/abs/1910.10683): half of them before and half
    after, of these half for one distance each, and the others for more and more, up to `most`."""
    half = buckets // 2
    single, far = half // 2, apart.abs()
    later = single + (torch.log(far.float() / single) / math.log(most / single) * (half - single)).long()
    return (apart > 0) * half + torch.where(far < single, far, later.clamp(max=half - 1))


@dataclass(frozen=True, slots=True)
class _Step:
    """Runs of texts of one length, as number and length, and the mask of each run."""

    alike: list[tuple[int, int]]
    masks: list[Tensor | None]
    scale: float | None


def _attended(step: _Step, query: Tensor, key: Tensor, value: Tensor, distances: DistanceVectors | None) -> Tensor:
    """Every token attends to its text: [T, H, D] and two [T, K, D] → [T, H × D]. Texts of one length at once."""
    grouped = query.shape[1] != key.shape[1]
    outputs, first = [], 0
    for (count, length), mask in zip(step.alike, step.masks, strict=True):
        q, k, v = (
            rows[first : first + count * length].unflatten(0, (count, length)).transpose(1, 2)
            for rows in (query, key, value)
        )
        if distances is not None and mask is not None and step.scale is not None:
            mask = distances.bias(q, k, mask, step.scale)
        attended = functional.scaled_dot_product_attention(
            q, k, v, attn_mask=mask, scale=step.scale, enable_gqa=grouped
        )
        outputs.append(attended.transpose(1, 2).reshape(count * length, -1))
        first += count * length
    return torch.cat(outputs)
