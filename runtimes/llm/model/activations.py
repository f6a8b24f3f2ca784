"""What an MLP does with the outputs of its first matrix."""

from statistics import NormalDist

import torch
from torch import Tensor
from torch.nn import functional

from runtimes.llm.model.model_config import ModelShape

XIELU_BETA = 0.5
_XIELU_EPS = -1e-6


def activated(config: ModelShape, rows: Tensor, parameters: Tensor | None = None, sparsity: float = 0.0) -> Tensor:
    """activation(gate) × up of gate and up side by side, or activation(up): [T, 2 × size] or [T, size] → [T, size].

    Of normally distributed gates, the share `sparsity` is below 0 after the subtraction, and then 0.
    """
    if not config.gated:
        return activation(config, rows, parameters)
    gate, up = rows.chunk(2, dim=-1)
    if config.gate_multiplier != 1:
        gate = gate * config.gate_multiplier
    if sparsity:
        quantile = NormalDist().inv_cdf(sparsity)
        gate = functional.relu(gate - (gate.mean(-1, keepdim=True) + quantile * gate.std(-1, False, keepdim=True)))
    if config.activation == "clamped_swiglu":
        alpha, limit = config.swiglu
        gate, up = gate.clamp(max=limit), up.clamp(min=-limit, max=limit)
        return gate * torch.sigmoid(alpha * gate) * (up + 1)
    return activation(config, gate, parameters) * up


def activation(config: ModelShape, rows: Tensor, parameters: Tensor | None = None) -> Tensor:
    """Of each number alone; `parameters` are xIELU's."""
    match config.activation:
        case "silu":
            return functional.silu(rows)
        case "relu2":
            return functional.relu(rows).square()
        case "xielu":
            assert parameters is not None
            return _xielu(rows.float(), *functional.softplus(parameters)).to(rows.dtype)
        case _:
            return functional.gelu(rows, approximate="tanh" if config.activation == "gelu_tanh" else "none")


def _xielu(rows: Tensor, positive: Tensor, negative: Tensor) -> Tensor:
    """Huang et al. 2024, https://arxiv.org/abs/2411.13010."""
    below = (torch.expm1(rows.clamp(max=_XIELU_EPS)) - rows) * (XIELU_BETA + negative)
    return torch.where(rows > 0, positive * rows * rows, below) + XIELU_BETA * rows
