"""What shape a model has, whatever format its weights come in."""

from dataclasses import dataclass


class UnsupportedModel(ValueError):
    """The model has, or lacks, something that this engine cannot do without."""


_COUNTS = (
    "vocab_size", "hidden_size", "intermediate_size", "num_layers", "num_heads", "num_kv_heads", "head_dim",
    "context_length",
)  # fmt: skip
_MOST = 1 << 24


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """The shape of a model. `rope_factors` [head_dim / 2] divide the rotary frequencies, for long contexts."""

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    context_length: int
    rms_norm_eps: float
    rope_theta: float
    rope_factors: tuple[float, ...] | None
    tie_word_embeddings: bool
    eos_token_ids: frozenset[int]

    def __post_init__(self) -> None:
        for name in _COUNTS:
            if not isinstance(value := getattr(self, name), int) or not 1 <= value <= _MOST:
                raise UnsupportedModel(f"the configuration's {name} is {value!r}, which no model can have")
