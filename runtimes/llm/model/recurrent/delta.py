"""The gated delta rule (Yang et al. 2024, "Gated Delta Networks", https://arxiv.org/abs/2412.06464), as in Qwen 3-Next.

A head's state [K, V] maps keys to values. At each token it decays by exp(g), then what it has for the key is moved by
β towards the value; its output is what it has for the query. Prompts take spans of tokens at once: the corrections of a
span depend on each other through a triangular system, whose solution is two products (section 3.3 there). K is the size
of a key, V of a value, H the number of value heads, of which neighbours share a key head.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from runtimes.llm.model.matrix import Weight, concatenated, linear, with_rows
from runtimes.llm.model.model_config import DeltaShape, ModelShape
from runtimes.llm.model.recurrent.states import LayerStates, Recurrence, evolved

_SPAN = 64
_KEY_EPS = 1e-6


@dataclass(frozen=True, slots=True)
class DeltaLayer:
    """`into` is [channels + H × V, hidden]: queries, keys, values and gates; `rates` [2 × H, hidden]: β, then the
    steps. Vectors are float32."""

    into: Weight
    rates: Weight
    kernel: Tensor
    step_bias: Tensor
    decay: Tensor
    """Below 0."""
    norm: Tensor
    out: Weight


def read_delta(config: ModelShape, shape: DeltaShape, read: Callable[..., Any]) -> DeltaLayer:
    """`read(name, *sizes)` returns the layer's tensor of that name and shape."""
    hidden, heads, inner, channels = config.hidden_size, shape.value_heads, shape.inner, shape.channels
    if shape.by_key_head:
        into = with_rows(read("linear_attn.in_proj_qkvz.weight", channels + inner, hidden), _order(shape))
        rates = with_rows(read("linear_attn.in_proj_ba.weight", 2 * heads, hidden), _rates_order(shape))
    else:
        parts = (("qkv", channels), ("z", inner), ("b", heads), ("a", heads))
        matrices = [read(f"linear_attn.in_proj_{name}.weight", size, hidden) for name, size in parts]
        into, rates = concatenated(matrices[:2]), concatenated(matrices[2:])
    return DeltaLayer(
        into=into,
        rates=rates,
        kernel=read("linear_attn.conv1d.weight", channels, 1, shape.conv_length)[:, 0].float(),
        step_bias=read("linear_attn.dt_bias", heads),
        decay=-read("linear_attn.A_log", heads).exp(),
        norm=read("linear_attn.scale_of_values.weight", shape.value_dim),
        out=read("linear_attn.out_proj.weight", hidden, inner),
    )


def _order(shape: DeltaShape) -> Tensor:
    """Rows of a matrix that has, for each key head, its query, key, values and gates."""
    values = shape.value_heads // shape.key_heads * shape.value_dim
    sizes = (shape.key_dim, shape.key_dim, values, values)
    rows = torch.arange(shape.key_heads * sum(sizes)).view(shape.key_heads, -1)
    return torch.cat([part.flatten() for part in rows.split(sizes, dim=1)])


def _rates_order(shape: DeltaShape) -> Tensor:
    rows = torch.arange(2 * shape.value_heads).view(shape.key_heads, 2, -1)
    return rows.transpose(0, 1).flatten()


def corrected(
    delta: DeltaLayer, shape: DeltaShape, rows: Tensor, cache: LayerStates, recurrence: Recurrence, eps: float
) -> Tensor:
    """[T, hidden] → [T, hidden]; the layer's states become those after the step."""
    inputs, gate = linear(rows, delta.into).split([shape.channels, shape.inner], dim=1)
    rates, steps = linear(rows, delta.rates).float().chunk(2, dim=1)
    cell = _Cell(shape, rates.sigmoid(), functional.softplus(steps + delta.step_bias) * delta.decay)
    outputs = evolved(cell, inputs, delta.kernel, None, cache, recurrence).unflatten(1, (shape.value_heads, -1))
    normed = functional.rms_norm(outputs, delta.norm.shape, delta.norm, eps).flatten(1)
    return linear((normed * functional.silu(gate.float())).to(rows.dtype), delta.out)


@dataclass(frozen=True, slots=True)
class _Cell:
    """`RecurrentCell`; `rates` [T, H] are β, `decays` [T, H] are g."""

    shape: DeltaShape
    rates: Tensor
    decays: Tensor

    def _split(self, mixed: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries and keys [t, H, K] of length 1, queries / √K, and values [t, H, V]."""
        shape = self.shape
        keys = shape.key_heads * shape.key_dim
        q, k, v = mixed.split([keys, keys, shape.inner], dim=1)
        q, k = (self._unit(one.unflatten(1, (shape.key_heads, -1))) for one in (q, k))
        return q * shape.key_dim**-0.5, k, v.unflatten(1, (shape.value_heads, -1))

    def _unit(self, heads: Tensor) -> Tensor:
        unit = heads * torch.rsqrt(heads.square().sum(dim=-1, keepdim=True) + _KEY_EPS)
        return unit.repeat_interleave(self.shape.value_heads // self.shape.key_heads, dim=1)

    def once(self, rows: Tensor, mixed: Tensor, states: Tensor) -> tuple[Tensor, Tensor]:
        q, k, v = self._split(mixed)
        states = states * self.decays[rows].exp()[..., None, None]
        missing = (v - torch.einsum("nhkv,nhk->nhv", states, k)) * self.rates[rows][..., None]
        states = torch.addcmul(states, k[..., None], missing[:, :, None])
        return torch.einsum("nhkv,nhk->nhv", states, q).flatten(1), states

    def along(self, rows: slice, mixed: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        q, k, v = (one.transpose(0, 1) for one in self._split(mixed))  # [H, t, …]
        rates, decays = self.rates[rows].t(), self.decays[rows].t()
        outputs = []
        for first in range(0, q.shape[1], _SPAN):
            span = slice(first, first + _SPAN)
            output, state = _span(q[:, span], k[:, span], v[:, span], rates[:, span], decays[:, span], state)
            outputs.append(output)
        return torch.cat(outputs, dim=1).transpose(0, 1).flatten(1), state


def _span(q: Tensor, k: Tensor, v: Tensor, rates: Tensor, decays: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
    """A few tokens at once, heads first: outputs [H, t, V], and the state after them."""
    gone = decays.cumsum(dim=1)
    later = torch.ones(q.shape[1], q.shape[1], dtype=torch.bool, device=q.device).triu(1)
    between = (gone[:, :, None] - gone[:, None]).masked_fill(later, -torch.inf).exp()
    since, keys = gone.exp()[..., None], k * rates[..., None]
    system = keys @ k.transpose(1, 2) * between  # below its diagonal; the solver takes that as 1
    right_side = v * rates[..., None] - (keys * since) @ state
    moved = torch.linalg.solve_triangular(system, right_side, upper=False, unitriangular=True)
    output = (q * since) @ state + (q @ k.transpose(1, 2) * between) @ moved
    left = (gone[:, -1:] - gone).exp()[..., None]
    return output, state * gone[:, -1].exp()[:, None, None] + (k * left).transpose(1, 2) @ moved
