"""What shape a model has, whatever format its weights come in."""

from dataclasses import dataclass


class UnsupportedModel(ValueError):
    """The model has, or lacks, something that this engine cannot do without."""


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
