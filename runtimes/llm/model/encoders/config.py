"""The shape of an encoder, from its config.json."""

from collections.abc import Mapping
from copy import copy
from dataclasses import dataclass
from typing import Any

from runtimes.llm.model.encoders.distances import Disentangled
from runtimes.llm.model.encoders.families import ENCODERS, EncoderFamily, family_of
from runtimes.llm.model.model_config import MAX_LAYERS, Rope, UnsupportedModel, checked_count

_ACTIVATIONS = {
    "gelu": "gelu", "gelu_new": "gelu_tanh", "gelu_pytorch_tanh": "gelu_tanh", "relu": "relu", "silu": "silu",
}  # fmt: skip
_SIZES = (
    "hidden_size", "intermediate_size", "num_attention_heads", "vocab_size", "max_position_embeddings",
)  # fmt: skip
# Encoders by the way that they are trained, which this engine computes nothing of.
_OTHERS = frozenset({"deberta"})


@dataclass(frozen=True, slots=True)
class EncoderConfig:
    """The shape of an encoder. The defaults are BERT's.

    The first token of a text is at `first_position` of `num_positions`, which have `place_vectors` without `ropes`. Of
    a layer's kind, `ropes` turn its queries and keys, and it attends to `windows` tokens on each side. Without
    `pre_norms` norms are after attention and MLP, and their inputs; `post_norms` are of what these add. Scores have a
    bias by distance if there are `buckets` of distances, the last of all from `farthest` on. A `gated` MLP is
    activation(gate) × up. `square_norms` divide by the root mean square, with weights stored without `norm_offset`;
    `head_norms` are of each query and key. Scores are multiplied by `attention_scale`, 1 / √head_dim if None.
    Words have vectors of `embedding_size` if it is not None, which a matrix brings to `hidden_size`. `stored_layers`
    are the layers in the files, of each that is computed, if several are one. Scores may be `disentangled`.
    """

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_positions: int
    first_position: int
    num_types: int
    layer_norm_eps: float
    activation: str
    ropes: tuple[Rope, ...] = ()
    windows: tuple[int | None, ...] = (None,)
    layer_kinds: tuple[int, ...] = ()
    buckets: int = 0
    farthest: int = 128
    place_vectors: bool = True
    pre_norms: bool = False
    gated: bool = False
    attention_bias: bool = True
    up_bias: bool = True
    down_bias: bool = True
    norm_bias: bool = True
    first_norm: bool = True
    post_norms: bool = False
    embedding_norm: bool = True
    square_norms: bool = False
    norm_offset: float = 0.0
    head_norms: bool = False
    head_size: int | None = None
    key_heads: int | None = None
    attention_scale: float | None = None
    embedding_scale: float = 1.0
    embedding_size: int | None = None
    stored_layers: tuple[int, ...] = ()
    disentangled: Disentangled | None = None

    @property
    def num_kv_heads(self) -> int:
        return self.num_heads if self.key_heads is None else self.key_heads

    @property
    def head_dim(self) -> int:
        return self.hidden_size // self.num_heads if self.head_size is None else self.head_size

    @property
    def has_place_vectors(self) -> bool:
        """Whether positions have vectors."""
        return self.place_vectors and not self.ropes

    def kind(self, layer: int) -> int:
        return self.layer_kinds[layer] if self.layer_kinds else 0

    @property
    def context_length(self) -> int:
        """Tokens of the longest text."""
        return self.num_positions - self.first_position


def encodes(raw: Mapping[str, Any]) -> bool:
    """Whether a model with this config.json only embeds texts. Raises UnsupportedModel for an encoder of no family that
    is supported."""
    kind = raw.get("model_type")
    if not isinstance(kind, str):
        return False
    if kind in _OTHERS:
        raise UnsupportedModel(
            f"architecture {kind!r} is not supported; of encoders these are: {', '.join(sorted(ENCODERS))}. A"
            " server that supports it can be started with `kind: vllm`"
        )
    return family_of(raw) in ENCODERS


def shape_of(family: EncoderFamily, raw: dict[str, Any]) -> EncoderConfig:
    """The shape that config.json describes. Raises UnsupportedModel that names the missing feature."""
    raw = copy(raw)  # whose error for a missing field names the file
    raw.update({own: raw[stored] for own, stored in family.keys.items() if stored in raw})
    raw.update({name: value for name, value in family.defaults.items() if name not in raw})
    for name in _SIZES:
        checked_count(name, raw[name])
    checked_count("num_hidden_layers", raw["num_hidden_layers"], MAX_LAYERS)
    features = family.features(raw)
    if not features.get("ropes") and raw.get("position_embedding_type", "absolute") != "absolute":
        raise UnsupportedModel(f"position_embedding_type {raw['position_embedding_type']!r} is not supported")
    if raw.get("is_decoder"):
        raise UnsupportedModel("is_decoder is not supported: a model of BERT's family only encodes here")
    activation = _ACTIVATIONS.get(raw.get("hidden_act", "gelu"))
    if activation is None:
        raise UnsupportedModel(
            f"hidden_act {raw['hidden_act']!r} is not supported; these are: {', '.join(_ACTIVATIONS)}"
        )
    if not features.get("head_size") and raw["hidden_size"] % raw["num_attention_heads"]:
        raise UnsupportedModel("hidden_size is no multiple of num_attention_heads")
    described: dict[str, Any] = {
        "vocab_size": raw["vocab_size"],
        "hidden_size": raw["hidden_size"],
        "intermediate_size": raw["intermediate_size"],
        "num_layers": raw["num_hidden_layers"],
        "num_heads": raw["num_attention_heads"],
        "num_positions": raw["max_position_embeddings"],
        "first_position": 0,
        "num_types": raw.get("type_vocab_size", 2),
        "layer_norm_eps": raw.get("layer_norm_eps", 1e-12),
        "activation": activation,
    }
    return EncoderConfig(**described | features)
