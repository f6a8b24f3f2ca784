"""The shapes of what Gemma 3n and 4 add."""

from dataclasses import dataclass

from runtimes.llm.model.shapes.checks import MAX_LATENT, UnsupportedModel, checked_count

_MOST_STREAMS = 64


@dataclass(frozen=True, slots=True)
class PerLayerShape:
    """Every token has `size` numbers for each layer (per_layer.py). Tokens from `vocab_size` on have those of token
    0."""

    vocab_size: int
    size: int

    def __post_init__(self) -> None:
        checked_count("vocab_size_per_layer_input", self.vocab_size)
        checked_count("hidden_size_per_layer_input", self.size, MAX_LATENT)


@dataclass(frozen=True, slots=True)
class StreamShape:
    """A token's hidden state is `count` vectors, of which a layer computes the `active` one (streams.py). `rank` is of
    the learned sum beside attention. Layers read the active vector `scaled` for what they add to the others."""

    count: int
    active: int
    rank: int
    scaled: bool = True

    def __post_init__(self) -> None:
        checked_count("altup_num_inputs", self.count, _MOST_STREAMS)
        checked_count("laurel_rank", self.rank, MAX_LATENT)
        if not 0 <= self.active < self.count:
            raise UnsupportedModel(f"altup_active_idx is {self.active}; there are {self.count} inputs")
