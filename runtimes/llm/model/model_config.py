"""The shape of a model, independent of the format of its weights."""

from dataclasses import dataclass
from math import isfinite
from typing import Literal

Activation = Literal["silu", "gelu_tanh"]


class UnsupportedModel(ValueError):
    """The model has a part that this engine does not support, or lacks a part that it needs."""


_COUNTS = (
    "vocab_size", "hidden_size", "intermediate_size", "num_layers", "num_heads", "num_kv_heads", "head_dim",
    "context_length",
)  # fmt: skip
_MOST = 1 << 24
MAX_LAYERS = 1 << 12
MAX_HEAD_DIM = 1 << 12
_LARGEST = 1e9


def checked_count(name: str, value: object, most: int = _MOST) -> int:
    """`value` if it can be a size of a model. Raises UnsupportedModel."""
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= most:
        shown = repr(value) if not isinstance(value, int) or value.bit_length() < 100 else "a huge number"
        raise UnsupportedModel(f"the configuration's {name} is {shown}, which no model can have")
    return value


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
class LayerKind:
    """Layers with the same attention.

    A token attends to itself and the `window` - 1 tokens before it, to all if None.
    """

    rope: Rope
    window: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelShape:
    """The shape of a model. The defaults are those of most of the Llama family.

    `kinds` are the kinds of layers, `layer_kinds` each layer's index in them. `post_norms` are norms of the outputs of
    attention and MLP, in addition to those of their inputs. `fused_projections` describes how the weights are stored:
    queries, keys and values in one matrix, gate and up in another.
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
    qkv_bias: bool = False
    attention_out_bias: bool = False
    mlp_bias: bool = False
    qk_norm: bool = False
    post_norms: bool = False
    fused_projections: bool = False

    def __post_init__(self) -> None:
        """Check every size once: all computations, the native step too, rely on it."""
        for name in _COUNTS:
            checked_count(name, getattr(self, name), _BOUNDS.get(name, _MOST))
        if self.num_heads % self.num_kv_heads:
            raise UnsupportedModel(f"{self.num_heads} heads cannot share {self.num_kv_heads} key heads evenly")
        checked_count("num_heads times head_dim", self.num_heads * self.head_dim)
        for name in ("rms_norm_eps", "attention_scale", "embedding_multiplier"):
            _check_number(name, getattr(self, name))
        for name in ("attention_soft_cap", "logits_soft_cap"):
            if (cap := getattr(self, name)) is not None:
                _check_number(name, cap)
        if len(self.layer_kinds) != self.num_layers or not set(self.layer_kinds) <= set(range(len(self.kinds))):
            raise UnsupportedModel(f"the kinds of {len(self.layer_kinds)} layers are not those of {self.num_layers}")
        for kind in self.kinds:
            if kind.window is not None:
                checked_count("sliding_window", kind.window)
            _check_rope(kind.rope, self.head_dim)

    @property
    def windows(self) -> frozenset[int | None]:
        return frozenset(kind.window for kind in self.kinds)


_BOUNDS = {"num_layers": MAX_LAYERS, "head_dim": MAX_HEAD_DIM}


def _check_number(name: str, value: object) -> None:
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value < _LARGEST:
        raise UnsupportedModel(f"the configuration's {name} is {value!r}, which no model can have")


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
    _check_number("rope attention factor", rope.attention_factor)
