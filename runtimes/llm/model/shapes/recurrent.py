"""The shapes of layers with a recurrent state."""

from dataclasses import dataclass
from math import inf

from runtimes.llm.model.shapes.checks import MAX_LATENT, UnsupportedModel, check_number, checked_count


@dataclass(frozen=True, slots=True, kw_only=True)
class MambaShape:
    """Mamba-2's layers (recurrent/mamba.py): `heads` of `head_dim` numbers, each with `state` numbers to remember.

    Every group of neighbouring heads shares its B and C. Steps are kept within `step_limits`. What the heads give is
    multiplied by silu(gate), before a norm of each group if `normed`, or after it if `gated_last`. `multipliers` are
    those of gate, x, B, C and steps, `out_multiplier` that of the layer's output.
    """

    heads: int
    head_dim: int
    state: int
    groups: int
    conv_length: int
    conv_bias: bool = True
    bias: bool = False
    out_bias: bool = False
    normed: bool = True
    gated_last: bool = False
    step_limits: tuple[float, float] = (0.0, inf)
    multipliers: tuple[float, ...] = ()
    out_multiplier: float = 1.0

    def __post_init__(self) -> None:
        for name, value in (
            ("number of recurrent heads", self.heads), ("size of a recurrent head", self.head_dim),
            ("size of a recurrent state", self.state), ("number of recurrent groups", self.groups),
        ):  # fmt: skip
            checked_count(name, value, MAX_LATENT)
        checked_count("length of a convolution less one", self.conv_length - 1, 63)
        checked_count("size of recurrent layers", self.inner)
        for multiplier in (*self.multipliers, self.out_multiplier):
            check_number("multiplier of recurrent layers", multiplier)
        if self.heads % self.groups:
            raise UnsupportedModel(f"{self.heads} recurrent heads cannot be in {self.groups} groups")

    @property
    def inner(self) -> int:
        """What all heads give."""
        return self.heads * self.head_dim

    @property
    def channels(self) -> int:
        """The numbers of a token that are convolved."""
        return self.inner + 2 * self.groups * self.state

    @property
    def state_size(self) -> tuple[int, ...]:
        return (self.heads, self.head_dim, self.state)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeltaShape:
    """Layers of the gated delta rule (recurrent/delta.py). Files have their rows `by_key_head`, or in our own order."""

    key_heads: int
    value_heads: int
    key_dim: int
    value_dim: int
    conv_length: int
    by_key_head: bool = True

    def __post_init__(self) -> None:
        for name, value in (
            ("linear_num_key_heads", self.key_heads), ("linear_num_value_heads", self.value_heads),
            ("linear_key_head_dim", self.key_dim), ("linear_value_head_dim", self.value_dim),
        ):  # fmt: skip
            checked_count(name, value, MAX_LATENT)
        checked_count("linear_conv_kernel_dim less one", self.conv_length - 1, 63)
        checked_count("size of recurrent layers", self.channels)
        if self.value_heads % self.key_heads:
            raise UnsupportedModel(f"{self.value_heads} value heads cannot share {self.key_heads} key heads evenly")

    @property
    def inner(self) -> int:
        """What all heads give."""
        return self.value_heads * self.value_dim

    @property
    def channels(self) -> int:
        """The numbers of a token that are convolved: queries, keys and values."""
        return 2 * self.key_heads * self.key_dim + self.inner

    @property
    def state_size(self) -> tuple[int, ...]:
        return (self.value_heads, self.key_dim, self.value_dim)
