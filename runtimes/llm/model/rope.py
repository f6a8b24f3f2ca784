"""Rotary position embedding (Su et al. 2021, https://arxiv.org/abs/2104.09864) and its scalings to long contexts.

The frequencies are computed in float32, step by step as transformers does: at position 100,000 a difference in
their last bit is one of 0.01 in the angle.
"""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from runtimes.llm.model.model_config import MAX_HEAD_DIM, Rope, UnsupportedModel

SCALINGS = ("default", "linear", "dynamic", "llama3", "yarn", "longrope", "proportional")


def rotary_tables(rope: Rope, length: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Cosine and sine of every position's angles, each [length, turned dimensions / 2], float32."""
    frequencies = torch.tensor(rope.frequencies_for(length))
    angles = torch.outer(torch.arange(length, dtype=torch.float32), frequencies)
    return (angles.cos() * rope.attention_factor).to(device), (angles.sin() * rope.attention_factor).to(device)


def rotated(heads: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotate [T, heads, head_dim] by its positions' angles: of the first n turned dimensions, i pairs with i + n /
    2."""
    half = cos.shape[-1]
    first, second = heads[..., :half].float(), heads[..., half : 2 * half].float()
    turned = torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1).to(heads.dtype)
    return turned if 2 * half == heads.shape[-1] else torch.cat([turned, heads[..., 2 * half :]], dim=-1)


def rope_of(parameters: Mapping[str, Any], head_dim: int, context_length: int) -> Rope:
    """The rotation that Hugging Face's `rope_parameters` describe; `context_length` is `max_position_embeddings`.

    Raises UnsupportedModel for an unsupported scaling.
    """
    kind = scaling_type(parameters)
    if kind == "proportional":
        return _proportional(parameters, head_dim)
    dims = int(head_dim * parameters.get("partial_rotary_factor", 1.0))
    if not 2 <= dims <= MAX_HEAD_DIM:
        raise UnsupportedModel(f"a rotation of {dims} dimensions is not supported: a head has 2 to {MAX_HEAD_DIM}")
    theta = float(parameters["rope_theta"])
    if kind == "dynamic" and (alpha := parameters.get("alpha")):  # Hunyuan's: of one length, whatever it is called
        theta *= alpha ** (dims / (dims - 2))
    waves = _waves(theta, dims)
    plain = 1.0 / waves
    if kind == "linear":
        return Rope(_numbers(plain / parameters["factor"]))
    if kind == "llama3":
        return Rope(_numbers(_llama3(plain, parameters)))
    if kind == "yarn":
        return _yarn(parameters, waves, context_length)
    if kind == "longrope":
        return _longrope(parameters, waves, context_length)
    # Dynamic NTK changes positions beyond max_position_embeddings, where every context of this engine ends.
    return Rope(_numbers(plain))


def scaling_type(parameters: Mapping[str, Any]) -> str:
    kind: str = parameters.get("rope_type") or parameters.get("type") or "default"
    kind = "longrope" if kind == "su" else kind  # as the first Phi-3 called it
    if kind not in SCALINGS:
        raise UnsupportedModel(f"rope scaling {kind!r} is not supported; these are: {', '.join(SCALINGS)}")
    return kind


def _proportional(parameters: Mapping[str, Any], head_dim: int) -> Rope:
    """Gemma 4's: a head's pairs are of all its dimensions, and only the first pairs turn."""
    turned = int(parameters.get("partial_rotary_factor", 1.0) * head_dim // 2)
    if not 1 <= turned <= head_dim // 2 <= MAX_HEAD_DIM:
        raise UnsupportedModel(f"a rotation of {turned} pairs is not supported: a head has {head_dim // 2}")
    plain = 1.0 / _waves(float(parameters["rope_theta"]), head_dim) / parameters.get("factor", 1.0)
    return Rope((*_numbers(plain[:turned]), *[0.0] * (head_dim // 2 - turned)))


def divided(rope: Rope, factors: Tensor) -> Rope:
    """`rope` with every frequency divided by a separate factor."""
    if factors.shape != (len(rope.frequencies),):
        message = (
            f"rope_freqs has the shape {list(factors.shape)}; the rotation has {len(rope.frequencies)} frequencies"
        )
        raise UnsupportedModel(message)
    return replace(rope, frequencies=_numbers(torch.tensor(rope.frequencies) / factors))


def _waves(theta: float, dims: int) -> Tensor:
    """Positions per radian, by pair of dimensions."""
    exponents = torch.arange(0, dims, 2, dtype=torch.float32) / dims
    return torch.as_tensor(theta**exponents)


def _numbers(frequencies: Tensor) -> tuple[float, ...]:
    return tuple(frequencies.tolist())


def _llama3(plain: Tensor, parameters: Mapping[str, Any]) -> Tensor:
    """Stretch long waves by `factor`, medium ones in part, short ones not (Llama 3.1's release code)."""
    low, high, factor = parameters["low_freq_factor"], parameters["high_freq_factor"], parameters["factor"]
    waves = parameters["original_max_position_embeddings"] / (2 * math.pi / plain)
    unscaled = ((waves - low) / (high - low)).clamp(0, 1)
    return (1 - unscaled) * plain / factor + unscaled * plain


def _yarn(parameters: Mapping[str, Any], waves: Tensor, context_length: int) -> Rope:
    """Peng et al. 2023, https://arxiv.org/abs/2309.00071: short waves are unchanged, long waves are stretched."""
    theta, dims = float(parameters["rope_theta"]), 2 * len(waves)
    original = parameters.get("original_max_position_embeddings") or context_length
    factor = parameters.get("factor") or context_length / original

    def dimension(turns: float) -> float:  # the pair that turns so often within the original context
        return dims * math.log(original / (turns * 2 * math.pi)) / (2 * math.log(theta))

    low = dimension(parameters.get("beta_fast") or 32)
    high = dimension(parameters.get("beta_slow") or 1)
    if parameters.get("truncate", True):
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, dims - 1)
    high = high + 0.001 if low == high else high
    stretched = ((torch.arange(dims // 2, dtype=torch.float32) - low) / (high - low)).clamp(0, 1)
    frequencies = 1 / (factor * waves) * stretched + 1 / waves * (1 - stretched)
    return Rope(_numbers(frequencies), _yarn_attention_factor(parameters, factor))


def _yarn_attention_factor(parameters: Mapping[str, Any], factor: float) -> float:
    given = parameters.get("attention_factor")
    if given is not None:
        return float(given)

    def scale(strength: float) -> float:
        return 0.1 * strength * math.log(factor) + 1.0 if factor > 1 else 1.0

    over, under = parameters.get("mscale"), parameters.get("mscale_all_dim")
    return scale(over) / scale(under) if over and under else scale(1.0)


def _longrope(parameters: Mapping[str, Any], waves: Tensor, context_length: int) -> Rope:
    """Ding et al. 2024, https://arxiv.org/abs/2402.13753: two lists of factors, for short and for long contexts."""
    original = parameters.get("original_max_position_embeddings") or context_length
    factor = parameters.get("factor") or context_length / original
    attention_factor = parameters.get("attention_factor", parameters.get("short_mscale"))
    if parameters.get("long_mscale", attention_factor) != attention_factor:
        raise UnsupportedModel("rope scaling longrope with a short_mscale that is not its long_mscale is not supported")
    if attention_factor is None:
        attention_factor = math.sqrt(1 + math.log(factor) / math.log(original)) if factor > 1 else 1.0
    short, long = (torch.tensor(parameters[f"{name}_factor"], dtype=torch.float32) for name in ("short", "long"))
    if not len(short) == len(long) == len(waves):
        raise UnsupportedModel(f"rope scaling longrope needs {len(waves)} factors; it has {len(short)} and {len(long)}")
    return Rope(_numbers(1.0 / (short * waves)), float(attention_factor), original, _numbers(1.0 / (long * waves)))
