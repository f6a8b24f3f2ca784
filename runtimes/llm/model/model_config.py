"""The shape of a model, independent of the format of its weights."""

from dataclasses import dataclass
from math import isfinite
from typing import Literal, TypeAlias

from runtimes.llm.model.shapes.checks import (
    MAX_HEAD_DIM,
    MAX_LATENT,
    MAX_LAYERS,
    MOST,
    UnsupportedModel,
    check_number,
    checked_count,
)
from runtimes.llm.model.shapes.gemma import PerLayerShape, StreamShape
from runtimes.llm.model.shapes.parts import ExpertShape, IndexShape, LatentShape, Scoring
from runtimes.llm.model.shapes.recurrent import DeltaShape, MambaShape

__all__ = [  # checks are imported from here too
    "MAX_HEAD_DIM",
    "MAX_LATENT",
    "MAX_LAYERS",
    "Activation",
    "DeltaShape",
    "ExpertShape",
    "IndexShape",
    "LatentShape",
    "LayerKind",
    "MambaShape",
    "ModelShape",
    "NormName",
    "QueryGrowth",
    "QueryNorm",
    "Reach",
    "Rope",
    "Scoring",
    "TextPiece",
    "UnsupportedModel",
    "checked_count",
]  # fmt: skip
Activation = Literal["silu", "gelu_tanh", "gelu", "relu2", "xielu", "clamped_swiglu"]
NormName = Literal["rms", "layer", "layer_biased"]
QueryNorm = Literal["head", "head_after_rope", "whole", "turned_alone"]


_COUNTS = (
    "vocab_size", "hidden_size", "intermediate_size", "num_layers", "num_heads", "num_kv_heads", "head_dim",
    "context_length",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Rope:
    """The angle by which one position rotates each pair of a head's first dimensions.

    `frequencies` are radians a position, head_dim / 2 of them, or fewer where the rest of a head is not turned.
    Cosine and sine are multiplied by `attention_factor`. A context of more than `short_context` tokens takes
    `long_frequencies` in their place (LongRoPE).
    """

    frequencies: tuple[float, ...]
    attention_factor: float = 1.0
    short_context: int | None = None
    long_frequencies: tuple[float, ...] = ()

    def frequencies_for(self, context_length: int) -> tuple[float, ...]:
        short = self.short_context is None or context_length <= self.short_context
        return self.frequencies if short else self.long_frequencies


@dataclass(frozen=True, slots=True)
class TextPiece:
    """A token attends to those before it in its own piece of `size` tokens."""

    size: int


Reach: TypeAlias = int | TextPiece | None
"""The tokens that one attends to: itself and those just before it, as many together; of its piece; None is all."""


@dataclass(frozen=True, slots=True)
class LayerKind:
    """Layers with the same attention. Without `rope` nothing is turned. `heads` are the number of key heads and the
    size of a head, if they are not the model's; `values_are_keys` before their norms."""

    rope: Rope | None
    window: Reach = None
    heads: tuple[int, int] | None = None
    values_are_keys: bool = False


@dataclass(frozen=True, slots=True)
class QueryGrowth:
    """Queries grow with their position, as 1 + `beta` × log(1 + ⌊(position + `ahead`) / `length`⌋). If `unturned`, only
    those of layers without positions do."""

    beta: float
    length: int
    ahead: int = 0
    unturned: bool = False

    def __post_init__(self) -> None:
        check_number("growth of queries", self.beta)
        checked_count("length over which queries grow", self.length)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelShape:
    """The shape of a model. The defaults are those of most of the Llama family.

    `kinds` are the kinds of layers, `layer_kinds` each layer's index in them. `pre_norms` are norms of the inputs of
    attention and MLP, `post_norms` of their outputs. In `parallel` layers both read the same normed input. Norms of
    queries and keys are of each head, before or after it is turned, of all heads together, or of heads that were
    turned, without weights. A `gated` MLP is activation(gate) × up, another activation(up). Of `sinks`, every head has
    one more score, which takes part in the softmax alone. `dense_layers` have an MLP even if the model has experts.
    `rms_norm_eps` is that of every norm.
    """

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    context_length: int
    rms_norm_eps: float
    kinds: tuple[LayerKind, ...]
    layer_kinds: tuple[int, ...]
    attention_scale: float
    tie_word_embeddings: bool
    eos_token_ids: frozenset[int]
    activation: Activation = "silu"
    attention_soft_cap: float | None = None
    logits_soft_cap: float | None = None
    embedding_multiplier: float = 1.0
    residual_multiplier: float = 1.0
    logits_multiplier: float = 1.0
    gate_multiplier: float = 1.0
    """Of a gated MLP's gate, before its activation."""
    mlp_multiplier: float = 1.0
    attention_multiplier: float = 1.0
    """Of what attention gives."""
    qkv_bias: bool = False
    attention_out_bias: bool = False
    mlp_bias: bool = False
    head_bias: bool = False
    qk_norm: QueryNorm | None = None
    norm: NormName = "rms"
    pre_norms: bool = True
    post_norms: bool = False
    parallel: bool = False
    gated: bool = True
    swiglu: tuple[float, float] = (1.702, 7.0)
    """Of `clamped_swiglu`: the factor within the sigmoid, and the limit."""
    sinks: bool = False
    position_embeddings: bool = False
    query_growth: QueryGrowth | None = None
    latent: LatentShape | None = None
    """With it there is one key head, of the size of a cached position."""
    experts: ExpertShape | None = None
    dense_layers: frozenset[int] = frozenset()
    conv_layers: frozenset[int] = frozenset()
    """Layers with a short convolution over `conv_length` tokens in place of attention."""
    conv_length: int = 0
    conv_bias: bool = False
    attention_gate: bool = False
    """Whether what attention gives is multiplied by the sigmoid of a product of its own."""
    recurrent: MambaShape | DeltaShape | None = None
    recurrent_layers: frozenset[int] = frozenset()
    """Layers with a recurrent state."""
    unattended: frozenset[int] = frozenset()
    """Layers without attention, beside those with a short convolution."""
    without_mlp: frozenset[int] = frozenset()
    straight_attention: frozenset[int] = frozenset()
    """Layers, of those without attention, with one matrix in its place; `straight_mlp` of those without an MLP."""
    straight_mlp: frozenset[int] = frozenset()
    mlp_sizes: tuple[int, ...] = ()
    """Of each layer's MLP, if they differ; `intermediate_size` is the greatest."""
    sparsity: tuple[float, ...] = ()
    """The share of each layer's gates that is 0, were they normally distributed."""
    value_norm: bool = False
    """Whether values have an RMS norm without weights."""
    key_layers: tuple[int, ...] = ()
    """The layer whose keys and values each layer reads, itself or one before it; itself if empty."""
    stored_layers: tuple[int, ...] = ()
    """The number that files give each layer; its own if empty."""
    layer_factors: bool = False
    """Whether what a layer gives is multiplied by a number of its own."""
    per_layer: PerLayerShape | None = None
    streams: StreamShape | None = None

    def __post_init__(self) -> None:
        """Check every size once: all computations, the native step too, rely on it."""
        for name in _COUNTS:
            checked_count(name, getattr(self, name), _BOUNDS.get(name, MOST))
        if self.num_heads % self.num_kv_heads:
            raise UnsupportedModel(f"{self.num_heads} heads cannot share {self.num_kv_heads} key heads evenly")
        checked_count("num_heads times head_dim", self.num_heads * self.head_dim)
        for name in (
            "rms_norm_eps", "attention_scale", "embedding_multiplier", "residual_multiplier", "logits_multiplier",
            "gate_multiplier", "mlp_multiplier", "attention_multiplier",
        ):  # fmt: skip
            check_number(name, getattr(self, name))
        for name in ("attention_soft_cap", "logits_soft_cap"):
            if (cap := getattr(self, name)) is not None:
                check_number(name, cap)
        if len(self.layer_kinds) != self.num_layers or not set(self.layer_kinds) <= set(range(len(self.kinds))):
            raise UnsupportedModel(f"the kinds of {len(self.layer_kinds)} layers are not those of {self.num_layers}")
        if self.conv_layers:
            checked_count("conv_L_cache", self.conv_length, 64)
        if self.recurrent is not None and not self.attention_layers:
            raise UnsupportedModel("a model whose layers are all recurrent is not supported: none has attention")
        for size in self.mlp_sizes:
            checked_count("intermediate_size of a layer", size)
        for kind in self.kinds:
            if isinstance(kind.window, TextPiece):
                checked_count("attention_chunk_size", kind.window.size)
            elif kind.window is not None:
                checked_count("sliding_window", kind.window)
            if kind.heads is not None:
                self._check_heads(*kind.heads)
            if kind.rope is not None:
                _check_rope(kind.rope, self.head_dim if kind.heads is None else kind.heads[1])

    def _check_heads(self, keys: int, size: int) -> None:
        checked_count("num_key_value_heads of a layer", keys)
        checked_count("head_dim of a layer", size, MAX_HEAD_DIM)
        if self.num_heads % keys:
            raise UnsupportedModel(f"{self.num_heads} heads cannot share {keys} key heads evenly")

    @property
    def windows(self) -> frozenset[Reach]:
        return frozenset(kind.window for kind in self.kinds)

    @property
    def cached_tensors(self) -> int:
        """Keys and values, or latents, which are both."""
        return 2 if self.latent is None else 1

    def heads_of(self, layer: int) -> tuple[int, int]:
        """The number of a layer's key heads, and the size of a head."""
        own = self.kinds[self.layer_kinds[layer]].heads
        return (self.num_kv_heads, self.head_dim) if own is None else own

    @property
    def cached_heads(self) -> list[tuple[int, int]]:
        """Key heads and their size, of each layer that has keys and values of its own."""
        own = (layer for layer in range(self.num_layers) if self.attends(layer) and self.key_layer(layer) == layer)
        return [self.heads_of(layer) for layer in own]

    def attended_size(self, layer: int) -> int:
        """What all heads together give."""
        return self.num_heads * (self.heads_of(layer)[1] if self.latent is None else self.latent.value_dim)

    @property
    def inputs_of_position(self) -> tuple[int, int]:
        """What pages hold beside keys and values: of how many layers, and how many numbers of each."""
        index = None if self.latent is None else self.latent.index
        if index is not None:
            return len(index.layers), index.size
        return len(self.conv_layers), self.hidden_size

    @property
    def attention_layers(self) -> int:
        """The number of layers that have keys and values of their own."""
        return len(self.cached_heads)

    def key_layer(self, layer: int) -> int:
        """The layer whose keys and values a layer reads."""
        return self.key_layers[layer] if self.key_layers else layer

    @property
    def across_layers(self) -> str | None:
        """The part of the model for which a layer is not computed from the hidden states before it alone, or in which
        the outputs of a matrix are normed before the next."""
        index = None if self.latent is None else self.latent.index
        parts = {
            "several hidden states of a token": self.streams is not None,
            "embeddings for each layer": self.per_layer is not None,
            "keys that layers share": bool(self.key_layers),
            "norms of values": self.value_norm,
            "an indexer that layers share": index is not None and len(index.layers) < self.num_layers,
        }
        return next((part for part, there in parts.items() if there), None)

    @property
    def for_torch_alone(self) -> str | None:
        """The part of the model that only torch computes."""
        parts = {
            "latent attention": self.latent is not None,
            "short convolutions": bool(self.conv_layers),
            "recurrent layers": self.recurrent is not None,
            "several hidden states of a token": self.streams is not None,
            "embeddings for each layer": self.per_layer is not None,
            "keys that layers share": bool(self.key_layers),
            "norms of values": self.value_norm,
            "factors of layers": self.layer_factors,
            "heads of different sizes": any(kind.heads is not None for kind in self.kinds),
            "MLPs of different sizes": bool(self.mlp_sizes),
            "layers without attention or MLP": bool(self.unattended | self.without_mlp),
            "attention to pieces of a text": any(isinstance(kind.window, TextPiece) for kind in self.kinds),
            "norms of turned heads alone": self.qk_norm == "turned_alone",
            "queries that grow in some layers": self.query_growth is not None and self.query_growth.unturned,
            "experts that read a smaller state": self.experts is not None and self.experts.read > 0,
            "experts whose inputs are weighed": self.experts is not None and self.experts.weighs_inputs,
        }
        return next((part for part, there in parts.items() if there), None)

    def attends(self, layer: int) -> bool:
        return layer not in self.conv_layers and layer not in self.unattended

    def experts_of(self, layer: int) -> ExpertShape | None:
        return None if layer in self.dense_layers or layer in self.without_mlp else self.experts

    def mlp_size(self, layer: int) -> int:
        """The size of the MLP that computes every token of a layer; 0 if it has experts alone, or none."""
        if layer in self.without_mlp:
            return 0
        experts = self.experts_of(layer)
        if experts is not None:
            return experts.shared_size
        return self.mlp_sizes[layer] if self.mlp_sizes else self.intermediate_size


_BOUNDS = {"num_layers": MAX_LAYERS, "head_dim": MAX_HEAD_DIM}


def _check_rope(rope: Rope, head_dim: int) -> None:
    lists = [rope.frequencies] if rope.short_context is None else [rope.frequencies, rope.long_frequencies]
    for frequencies in lists:
        if not 1 <= len(frequencies) <= head_dim // 2:
            message = f"{2 * len(frequencies)} dimensions of a head cannot be turned: it has {head_dim}"
            raise UnsupportedModel(f"the configuration's rope is not valid: {message}")
        if not all(map(isfinite, frequencies)):
            raise UnsupportedModel("the configuration's rope has frequencies that are not finite")
    if len(set(map(len, lists))) > 1:
        raise UnsupportedModel("the configuration's rope has more frequencies for one context than for the other")
    check_number("rope attention factor", rope.attention_factor)
