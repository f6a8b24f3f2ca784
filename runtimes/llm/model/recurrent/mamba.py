"""Mamba-2 (Dao and Gu 2024, "Transformers are SSMs", https://arxiv.org/abs/2405.21060).

A head's state [P, N] decays by exp(Δ × A) at each token and gains Δ × x Bᵀ; its output is state × C + D × x. Prompts
take many tokens at once (section 6 there): within a span the sum over earlier tokens is a masked product, and only the
state between spans is a recurrence. P is the size of a head, N of a state, H the number of heads, G of groups that
share B and C.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from runtimes.llm.model.matrix import Weight, linear
from runtimes.llm.model.model_config import MambaShape, ModelShape
from runtimes.llm.model.recurrent.states import LayerStates, Recurrence, evolved

_SPAN = 64


@dataclass(frozen=True, slots=True)
class Mamba:
    """`into` is [2 × H × P + 2 × G × N + H, hidden]: gate, x, B, C and Δ. Vectors are float32."""

    into: Weight
    into_bias: Tensor | None
    kernel: Tensor
    kernel_bias: Tensor | None
    step_bias: Tensor
    decay: Tensor
    """A, below 0."""
    skip: Tensor
    norm: Tensor | None
    out: Weight
    out_bias: Tensor | None
    scales: Tensor | None
    """The factors of what `into` gives."""


def read_mamba(config: ModelShape, shape: MambaShape, read: Callable[..., Any], dtype: torch.dtype) -> Mamba:
    """`read(name, *sizes)` returns the layer's tensor of that name and shape."""
    hidden, inner, channels, heads = config.hidden_size, shape.inner, shape.channels, shape.heads
    step_bias = read("mamba.dt_bias", heads)
    return Mamba(
        into=read("mamba.in_proj.weight", inner + channels + heads, hidden),
        into_bias=read("mamba.in_proj.bias", inner + channels + heads).to(dtype) if shape.bias else None,
        kernel=read("mamba.conv1d.weight", channels, 1, shape.conv_length)[:, 0].float(),
        kernel_bias=read("mamba.conv1d.bias", channels) if shape.conv_bias else None,
        step_bias=step_bias,
        decay=-read("mamba.A_log", heads).exp(),
        skip=read("mamba.D", heads),
        norm=read("mamba.norm.weight", inner) if shape.normed else None,
        out=read("mamba.out_proj.weight", hidden, inner),
        out_bias=read("mamba.out_proj.bias", hidden).to(dtype) if shape.out_bias else None,
        scales=_scales(shape).to(step_bias.device) if shape.multipliers else None,
    )


def _scales(shape: MambaShape) -> Tensor:
    shared = shape.groups * shape.state
    sizes = torch.tensor([shape.inner, shape.inner, shared, shared, shape.heads])
    return torch.tensor(shape.multipliers).repeat_interleave(sizes)


def remembered(
    mamba: Mamba, shape: MambaShape, rows: Tensor, cache: LayerStates, recurrence: Recurrence, eps: float
) -> Tensor:
    """[T, hidden] → [T, hidden]; the layer's states become those after the step."""
    projected = linear(rows, mamba.into, mamba.into_bias)
    if mamba.scales is not None:
        projected = projected * mamba.scales.to(projected.dtype)
    gate, inputs, steps = projected.split([shape.inner, shape.channels, shape.heads], dim=1)
    cell = _Cell(mamba, shape, functional.softplus(steps.float() + mamba.step_bias).clamp(*shape.step_limits))
    outputs = evolved(cell, inputs, mamba.kernel, mamba.kernel_bias, cache, recurrence)
    given = linear(_gated(mamba, shape, outputs, gate.float(), eps).to(rows.dtype), mamba.out, mamba.out_bias)
    return given if shape.out_multiplier == 1 else given * shape.out_multiplier


def _gated(mamba: Mamba, shape: MambaShape, outputs: Tensor, gate: Tensor, eps: float) -> Tensor:
    opened = functional.silu(gate)
    if mamba.norm is None:
        return outputs * opened
    outputs = outputs if shape.gated_last else outputs * opened
    grouped = outputs.unflatten(1, (shape.groups, -1))
    normed = functional.rms_norm(grouped, grouped.shape[2:], eps=eps).flatten(1) * mamba.norm
    return normed * opened if shape.gated_last else normed


@dataclass(frozen=True, slots=True)
class _Cell:
    """`RecurrentCell`; `steps` [T, H] are Δ."""

    mamba: Mamba
    shape: MambaShape
    steps: Tensor

    def _split(self, mixed: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """x [T, G, H / G, P], B and C [T, G, N]."""
        shape = self.shape
        size = shape.groups * shape.state
        x, b, c = mixed.split([shape.inner, size, size], dim=1)
        each = (shape.groups, -1)
        return x.view(len(x), shape.groups, -1, shape.head_dim), b.unflatten(1, each), c.unflatten(1, each)

    def once(self, rows: Tensor, mixed: Tensor, states: Tensor) -> tuple[Tensor, Tensor]:
        x, b, c = self._split(mixed)
        step = self.steps[rows].view(*x.shape[:3])
        decays = (step * self.mamba.decay.view(x.shape[1], -1)).exp()
        states = states.view(*x.shape, -1) * decays[..., None, None]
        states = torch.addcmul(states, (x * step[..., None])[..., None], b[:, :, None, None])
        y = (states @ c[:, :, None, :, None])[..., 0] + x * self.mamba.skip.view(x.shape[1], -1, 1)
        return y.flatten(1), states.flatten(1, 2)

    def along(self, rows: slice, mixed: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        x, b, c = self._split(mixed)
        step = self.steps[rows].view(*x.shape[:3])
        state = state.view(*x.shape[1:], -1)
        outputs = []
        for first in range(0, len(x), _SPAN):
            span = slice(first, first + _SPAN)
            y, state = self._span(x[span], step[span], b[span], c[span], state)
            outputs.append(y)
        skipped = x * self.mamba.skip.view(x.shape[1], -1, 1)
        return (torch.cat(outputs) + skipped).flatten(1), state.flatten(0, 1)

    def _span(self, x: Tensor, step: Tensor, b: Tensor, c: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        """A few tokens at once: outputs [t, G, H / G, P] without the skip, and the state after them."""
        gone = (step * self.mamba.decay.view(x.shape[1], -1)).cumsum(dim=0).permute(1, 2, 0)  # [G, H / G, t]
        later = torch.ones(len(x), len(x), dtype=torch.bool, device=x.device).triu(1)
        decays = (gone[..., :, None] - gone[..., None, :]).masked_fill(later, -torch.inf).exp()
        scores = torch.einsum("ign,jgn->gij", c, b)[:, None] * decays
        gained = x * step[..., None]
        y = torch.einsum("ghij,jghp->ighp", scores, gained)
        y = y + torch.einsum("ign,ghpn,ghi->ighp", c, state, gone.exp())
        left = (gone[..., -1:] - gone).exp()
        state = state * gone[..., -1].exp()[..., None, None] + torch.einsum("ghj,jghp,jgn->ghpn", left, gained, b)
        return y, state
