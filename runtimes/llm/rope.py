"""Rotary position embedding (Su et al. 2021, https://arxiv.org/abs/2104.09864) and its scaling to long contexts."""

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from runtimes.llm.model_config import UnsupportedModel


def rotary_tables(
    head_dim: int, length: int, theta: float, factors: tuple[float, ...] | None, device: torch.device
) -> tuple[Tensor, Tensor]:
    """Cosine and sine of every position's angles, each [length, head_dim / 2], float32."""
    exponents = torch.arange(0, head_dim, 2, dtype=torch.float32) / head_dim
    frequencies = 1.0 / theta**exponents
    if factors is not None:
        frequencies = frequencies / torch.tensor(factors)
    angles = torch.outer(torch.arange(length, dtype=torch.float32), frequencies)
    return angles.cos().to(device), angles.sin().to(device)


def rotated(heads: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Turn [T, heads, head_dim] by its positions' angles: dimension i pairs with i + head_dim / 2."""
    first, second = heads.float().chunk(2, dim=-1)
    return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1).to(heads.dtype)


def rope_factors(rope: Mapping[str, Any], head_dim: int) -> tuple[float, ...] | None:
    """How far each of the head_dim / 2 rotary frequencies is slowed down, None where not.

    `rope` is Hugging Face's `rope_parameters`. Raises UnsupportedModel for a scaling that is not known here.
    """
    kind = rope.get("rope_type", rope.get("type", "default"))
    if kind == "default":
        return None
    if kind == "linear":
        return (float(rope["factor"]),) * (head_dim // 2)
    if kind == "llama3":
        return tuple(_llama3_factor(rope, 2 * i / head_dim) for i in range(head_dim // 2))
    raise UnsupportedModel(f"rope scaling {kind!r} is not supported; linear and llama3 are")


def _llama3_factor(rope: Mapping[str, Any], exponent: float) -> float:
    """Long waves are stretched by `factor`, short ones not, those between in part (Llama 3.1's release code)."""
    low, high = rope["low_freq_factor"], rope["high_freq_factor"]
    waves = rope["original_max_position_embeddings"] / (2 * math.pi * rope["rope_theta"] ** exponent)
    unscaled: float = min(max((waves - low) / (high - low), 0.0), 1.0)
    return 1 / ((1 - unscaled) / float(rope["factor"]) + unscaled)
