"""Decoders in the manner of Llama, as `ModelShape` describes them.

RMSNorm, rotary positions, grouped-query attention, a gated MLP (Touvron et al. 2023, https://arxiv.org/abs/2302.13971),
and the additions of others: biases, norms of queries and keys, norms after attention and MLP, soft caps, windows (Gemma
Team 2024, https://arxiv.org/abs/2408.00118), layers whose attention and MLP are parallel, LayerNorm, sinks, and
mixtures of experts. T is the number of tokens in a step.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor
from torch.nn import functional

from runtimes.llm.model.activations import activated, activation
from runtimes.llm.model.attention import Attention, KVCache, ScoreOptions
from runtimes.llm.model.experts import mixed
from runtimes.llm.model.gemma.mixture import judged
from runtimes.llm.model.gemma.per_layer import gated, read_rows
from runtimes.llm.model.gemma.streams import read_ends
from runtimes.llm.model.latents import latent
from runtimes.llm.model.latents.sparse import Selection
from runtimes.llm.model.layers import Layer, TensorSource, read_layer
from runtimes.llm.model.lora import AdaptedRows, MatrixName, add_low_rank
from runtimes.llm.model.matrix import Weight, embedding, linear
from runtimes.llm.model.model_config import DeltaShape, MambaShape, ModelShape
from runtimes.llm.model.recurrent.delta import DeltaLayer, corrected
from runtimes.llm.model.recurrent.mamba import Mamba, remembered
from runtimes.llm.model.recurrent.states import Recurrence
from runtimes.llm.model.rope import rotary_tables, rotated
from runtimes.llm.model.short_conv import Recent, convolved
from runtimes.llm.model.split import RankGroup
from runtimes.llm.picture_rows import put_rows

Turn = tuple[Tensor, Tensor]
"""Cosine and sine of positions' angles."""


@dataclass(frozen=True, slots=True)
class _Step:
    """What all layers of a step share."""

    turns: Sequence[Turn | None]
    growth: Tensor | None
    cache: KVCache
    layout: Attention
    adapted: AdaptedRows
    recent: Recent | None
    recurrence: Recurrence | None
    token_rows: Tensor | None
    selection: Selection | None


class Llama:
    """A decoder-only transformer whose keys and values are in a paged cache.

    `tensor(name, shape)` returns the weight of that Hugging Face name, which must have that shape, on the device to
    compute with: a matrix in the dtype to compute with, a vector in float32. With `ranks` it is this rank's part of a
    model, `config` is the part's shape, and all ranks compute the same steps.
    """

    def __init__(self, config: ModelShape, tensor: TensorSource, ranks: RankGroup | None = None) -> None:
        self.config = config
        self.ranks = ranks
        rows = config.vocab_size if ranks is None else len(ranks.split.vocabulary)
        vocabulary = (rows, config.hidden_size)
        self.embedding = tensor("model.embed_tokens.weight", vocabulary)
        self.dtype: torch.dtype = self.embedding.dtype
        self.device: torch.device = self.embedding.device
        # As it was in training, where it was a number of the weights' dtype.
        self.embedding_multiplier = float(torch.tensor(config.embedding_multiplier, dtype=self.dtype))
        self.scores = [
            ScoreOptions(kind.window, config.attention_scale, config.attention_soft_cap) for kind in config.kinds
        ]
        self.layers = [read_layer(config, tensor, index, self.dtype) for index in range(config.num_layers)]
        self.norm = tensor("model.norm.weight", (config.hidden_size,))
        biased = config.norm == "layer_biased"
        self.norm_bias = tensor("model.norm.bias", (config.hidden_size,)) if biased else None
        self.head = self.embedding if config.tie_word_embeddings else tensor("lm_head.weight", vocabulary)
        self.head_bias = tensor("lm_head.bias", (rows,)) if config.head_bias else None
        attending = [index for index in range(config.num_layers) if config.attends(index)]
        # Each layer's place in the cache of its kind.
        convs = sorted(config.conv_layers)
        own = [index for index in attending if config.key_layer(index) == index]
        self._cached_at = {index: place for kind in (convs, own) for place, index in enumerate(kind)}
        self._cached_at |= {index: self._cached_at[config.key_layer(index)] for index in attending}
        self._state_at = {index: place for place, index in enumerate(sorted(config.recurrent_layers))}
        places = (config.context_length, config.hidden_size)
        self.places = tensor("model.embed_positions.weight", places) if config.position_embeddings else None
        self._grows_unturned = config.query_growth is not None and config.query_growth.unturned
        self.token_rows = None if config.per_layer is None else read_rows(config, config.per_layer, tensor)
        self.ends = None if config.streams is None else read_ends(config, config.streams, tensor)

    @property
    def kv_bytes_per_token(self) -> int:
        """Cache memory of one position, all layers together."""
        each = sum(heads * size for heads, size in self.config.cached_heads)
        return self.config.cached_tensors * each * int(self.dtype.itemsize)

    def rotary(self, context_length: int) -> list[Turn | None]:
        """By kind of layer: cosine and sine of every position, each [context, turned dimensions / 2], float32."""
        ropes = [kind.rope for kind in self.config.kinds]
        return [None if rope is None else rotary_tables(rope, context_length, self.device) for rope in ropes]

    def embedded(self, token_ids: Tensor, positions: Tensor) -> Tensor:
        """What the first layer reads: [T] → [T, hidden]."""
        hidden = embedding(token_ids, self.embedding) if self.ranks is None else self._gathered(token_ids, self.ranks)
        if self.embedding_multiplier != 1:
            hidden = hidden * self.embedding_multiplier
        return hidden if self.places is None else hidden + self.places[positions].to(hidden.dtype)

    def _gathered(self, token_ids: Tensor, ranks: RankGroup) -> Tensor:
        own = ranks.split.vocabulary
        there = (token_ids >= own.start) & (token_ids < own.stop)
        rows = embedding((token_ids - own.start).where(there, 0), self.embedding)
        return ranks.summed(rows.masked_fill(~there[:, None], 0))

    def query_growth(self, positions: Tensor) -> Tensor | None:
        """The factor of the queries at `positions` [T], float32."""
        if (how := self.config.query_growth) is None:
            return None
        return 1 + how.beta * torch.log1p(torch.floor((positions.float() + how.ahead) / how.length))

    def forward(
        self, token_ids: Tensor, positions: Tensor, rotary: Sequence[Turn | None], cache: KVCache, layout: Attention,
        adapted: AdaptedRows = (), recent: Recent | None = None, recurrence: Recurrence | None = None,
        pictures: Sequence[tuple[int, Tensor]] = (),
    ) -> Tensor:  # fmt: skip
        """Hidden states [T, hidden] of `token_ids` [T] at `positions` [T]; writes what the cache holds of them.
        `pictures` replace the embeddings from a place on."""
        hidden = self.embedded(token_ids, positions)
        put_rows(hidden, pictures)
        rows = None if self.token_rows is None else self.token_rows.of(token_ids, hidden, self.config)
        step = self._step(positions, rotary, cache, layout, adapted, recent, recurrence, rows)
        if self.ends is not None:
            hidden = self._streamed(hidden, step)
        else:
            for index, layer in enumerate(self.layers):
                hidden = self._through(layer, index, hidden, step)
        return self._normed(hidden, self.norm, self.norm_bias)

    def _step(
        self, positions: Tensor, rotary: Sequence[Turn | None], cache: KVCache, layout: Attention,
        adapted: AdaptedRows, recent: Recent | None, recurrence: Recurrence | None, rows: Tensor | None = None,
    ) -> "_Step":  # fmt: skip
        turns = [
            None if turn is None else (turn[0][positions][:, None], turn[1][positions][:, None]) for turn in rotary
        ]
        growth, selection = self.query_growth(positions), self._selection(cache)
        return _Step(turns, growth, cache, layout, adapted, recent, recurrence, rows, selection)

    def _through(self, layer: Layer, index: int, hidden: Tensor, step: "_Step") -> Tensor:
        """What the layer `index` makes of the states before it: [T, hidden] → [T, hidden]."""
        factor = self.config.residual_multiplier
        if layer.mixes:
            normed = self._normed(hidden, layer.attention_norm, layer.attention_norm_bias)
            mixed = self._normed(self._mixed(layer, normed, index, step), layer.attention_post_norm)
            if self.config.parallel:
                return hidden + mixed + self._summed(self._mlp(layer, index, normed, step.adapted))
            hidden = hidden + (mixed if factor == 1 else mixed * factor)
        if not layer.has_mlp:
            return hidden
        given = self._computed(layer, hidden, index, step)
        hidden = hidden + (given if factor == 1 else given * factor)
        if layer.per_layer is not None:
            hidden = hidden + self._of_token(layer, hidden, index, step)
        return hidden if layer.factor is None else (hidden * layer.factor).to(hidden.dtype)

    def _of_token(self, layer: Layer, hidden: Tensor, index: int, step: "_Step") -> Tensor:
        """What a layer adds for a token's own rows."""
        assert layer.per_layer is not None
        assert step.token_rows is not None
        activate = partial(activation, self.config)
        return gated(layer.per_layer, hidden, step.token_rows[:, index], activate, self.config.rms_norm_eps)

    def _computed(self, layer: Layer, hidden: Tensor, index: int, step: "_Step") -> Tensor:
        """What an MLP adds, between its norms."""
        normed = self._normed(hidden, layer.mlp_norm, layer.mlp_norm_bias)
        given = self._summed(self._mlp(layer, index, normed, step.adapted))
        if (apart := layer.apart) is not None:
            shape, experts = self.config.experts_of(index), layer.experts
            assert shape is not None
            assert experts is not None
            read, chooses = self._normed(hidden, apart.read), judged(hidden, self.config.rms_norm_eps)
            chosen = self._normed(mixed(self.config, shape, experts, read, chooses), apart.given)
            given = self._normed(given, apart.dense) + chosen
        return self._normed(given, layer.mlp_post_norm)

    def _selection(self, cache: KVCache) -> Selection | None:
        if self.config.latent is None or self.config.latent.index is None:
            return None
        assert cache.inputs is not None
        return Selection(self.config.latent.index, cache.inputs)

    def _streamed(self, embedded: Tensor, step: "_Step") -> Tensor:
        """All layers, where a token has several hidden states: [T, hidden] → [T, hidden]."""
        config, shape = self.config, self.config.streams
        assert self.ends is not None
        assert shape is not None
        eps, active = config.rms_norm_eps, shape.active
        streams = self.ends.begun(embedded)
        for index, layer in enumerate(self.layers):
            assert layer.streams is not None
            predicted = layer.streams.predicted(streams, active, eps)
            normed = self._normed(predicted[active], layer.attention_norm)
            mixed = self._normed(self._mixed(layer, normed, index, step), layer.attention_post_norm)
            hidden = (predicted[active] + mixed + layer.streams.summed(normed, eps)) / math.sqrt(2)
            hidden = hidden + self._computed(layer, hidden, index, step)
            streams = layer.streams.corrected(predicted, hidden, active, eps)
            first = streams[active]
            if layer.streams.scale is not None:
                first = (first * layer.streams.scale).to(first.dtype)
            streams = torch.cat([streams[:1], streams[1:] + self._of_token(layer, first, index, step)])
        return self.ends.ended(streams)

    def logits(self, hidden: Tensor) -> Tensor:
        """[rows, hidden] → [rows, vocab]. With ranks, those of rank 0 alone have a meaning."""
        logits = linear(hidden, self.head)
        if self.head_bias is not None:
            logits = logits + self.head_bias
        if self.ranks is not None:
            logits = self.ranks.joined(logits)
        if self.config.logits_multiplier != 1:
            logits = logits * self.config.logits_multiplier
        cap = self.config.logits_soft_cap
        return logits if cap is None else torch.tanh(logits.float() / cap) * cap

    def _mixed(self, layer: Layer, normed: Tensor, index: int, step: "_Step") -> Tensor:
        """What a token takes from those before it."""
        if layer.conv is not None:
            assert step.recent is not None
            assert step.cache.inputs is not None
            return convolved(layer.conv, normed, step.cache.inputs[self._cached_at[index]], step.recent)
        if layer.straight_attention is not None:
            return linear(normed, layer.straight_attention)
        memory = layer.mamba or layer.delta
        if memory is None:
            return self._attention(layer, normed, index, step)
        given = self._remembered(memory, normed, index, step)
        if layer.attention_out is None:
            return given
        return given + self._attention(layer, normed, index, step) * self.config.attention_multiplier

    def _remembered(self, memory: Mamba | DeltaLayer, normed: Tensor, index: int, step: "_Step") -> Tensor:
        shape = self.config.recurrent
        assert shape is not None
        assert step.cache.states is not None
        assert step.recurrence is not None
        states, eps = step.cache.states[self._state_at[index]], self.config.rms_norm_eps
        if isinstance(memory, DeltaLayer):
            assert isinstance(shape, DeltaShape)
            return corrected(memory, shape, normed, states, step.recurrence, eps)
        assert isinstance(shape, MambaShape)
        return remembered(memory, shape, normed, states, step.recurrence, eps)

    def _attention(self, layer: Layer, normed: Tensor, index: int, step: "_Step") -> Tensor:
        config, place, cache, layout = self.config, self._cached_at[index], step.cache, step.layout
        turn, growth, adapted = step.turns[layer.kind], step.growth, step.adapted
        assert layer.attention_out is not None
        if layer.latent is not None:
            assert config.latent is not None
            assert turn is not None
            how = self.scores[layer.kind]
            keys = cache.keys_of(place)
            sparse = step.selection
            inner = latent.attended(layer.latent, config.latent, normed, turn, keys, layout, how, growth, sparse)
            return linear(inner, layer.attention_out)
        assert layer.qkv is not None
        key_heads, size = config.heads_of(index)
        ends = [config.num_heads * size, (config.num_heads + key_heads) * size]
        query, *others = _product(normed, layer.qkv, layer.qkv_bias, adapted, index, "qkv").tensor_split(ends, dim=1)
        query, key, value = self._placed(query, layer.query_norm, turn, size), None, None
        if config.key_layer(index) == index:
            key = self._placed(others[0], layer.key_norm, turn, size)
            value = self._values(others[0] if config.kinds[layer.kind].values_are_keys else others[1], size)
        if growth is not None and (turn is None or not self._grows_unturned):
            query = (query * growth[:, None, None]).to(query.dtype)
        attended = layout.attend(
            query,
            key,
            value,
            cache.keys_of(place),
            cache.values_of(place),
            self.scores[layer.kind],
            layer.sinks,
        )
        inner = attended.flatten(1)
        if layer.attention_gate is not None:
            inner = inner * torch.sigmoid(linear(normed, layer.attention_gate))
        return self._summed(
            _product(inner, layer.attention_out, layer.attention_out_bias, adapted, index, "attention_out")
        )

    def _summed(self, part: Tensor) -> Tensor:
        return part if self.ranks is None else self.ranks.summed(part)

    def _values(self, rows: Tensor, head_dim: int) -> Tensor:
        """[T, heads × head_dim] → [T, heads, head_dim]."""
        heads = rows.unflatten(1, (-1, head_dim))
        return self._unweighted(heads) if self.config.value_norm else heads

    def _unweighted(self, heads: Tensor) -> Tensor:
        """An RMS norm of each head without weights."""
        return functional.rms_norm(heads.float(), heads.shape[-1:], None, self.config.rms_norm_eps).to(heads.dtype)

    def _placed(self, rows: Tensor, norm: Tensor | None, turn: Turn | None, head_dim: int) -> Tensor:
        """Queries or keys, normed and turned: [T, heads × head_dim] → [T, heads, head_dim]."""
        if self.config.qk_norm == "whole":
            rows = self._normed(rows, norm)
        heads = rows.unflatten(1, (-1, head_dim))
        if self.config.qk_norm == "head":
            heads = self._normed(heads, norm)
        if turn is not None:
            heads = rotated(heads, *turn)
            if self.config.qk_norm == "turned_alone":
                return self._unweighted(heads)
        return self._normed(heads, norm) if self.config.qk_norm == "head_after_rope" else heads

    def _mlp(self, layer: Layer, index: int, normed: Tensor, adapted: AdaptedRows) -> Tensor:
        if layer.straight_mlp is not None:
            return linear(normed, layer.straight_mlp)
        given = None
        if layer.gate_up is not None and layer.down is not None:
            both = _product(normed, layer.gate_up, layer.gate_up_bias, adapted, index, "gate_up")
            sparsity = self.config.sparsity[index] if self.config.sparsity else 0.0
            inner = activated(self.config, both, layer.activation, sparsity)
            given = _product(inner, layer.down, layer.down_bias, adapted, index, "down")
            if self.config.mlp_multiplier != 1:
                given = given * self.config.mlp_multiplier
        if layer.experts is None or layer.apart is not None:
            assert given is not None  # as `ModelShape.mlp_size` has it
            return given
        shape = self.config.experts_of(index)
        assert shape is not None
        if given is not None and (gate := layer.experts.shared_gate) is not None:
            given = given * torch.sigmoid(functional.linear(normed.float(), gate)).to(given.dtype)
        chosen = mixed(self.config, shape, layer.experts, normed)
        return chosen if given is None else given + chosen

    def _normed(self, x: Tensor, weight: Tensor | None, bias: Tensor | None = None) -> Tensor:
        """`x` where there is no norm."""
        if weight is None:
            return x
        eps = self.config.rms_norm_eps
        # Norms of queries and keys are RMS norms in every family.
        if self.config.norm == "rms" or x.dim() > 2:
            return functional.rms_norm(x.float(), weight.shape, weight, eps).to(x.dtype)
        return functional.layer_norm(x.float(), weight.shape, weight, bias, eps).to(x.dtype)


def _product(
    rows: Tensor, weight: Weight, bias: Tensor | None, adapted: AdaptedRows, layer: int, matrix: MatrixName
) -> Tensor:
    outputs = linear(rows, weight, bias)
    if adapted:
        add_low_rank(outputs, rows, adapted, layer, matrix)
    return outputs
