"""Alternating updates (Baykal et al. 2023, https://arxiv.org/abs/2301.13310) and LAuReL (Menghani et al. 2024,
https://arxiv.org/abs/2411.07501), as in Gemma 3n.

A token's hidden state is N vectors. Before a layer, all are predicted from all. The layer computes the active one, and
the difference from its prediction corrects all. T is the number of tokens in a step.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn import functional

from runtimes.llm.model.matrix import Weight, linear
from runtimes.llm.model.shapes.gemma import StreamShape

if TYPE_CHECKING:
    from runtimes.llm.model.model_config import ModelShape

COEFFICIENTS = (
    ".altup.modality_router.weight", ".altup.prediction_coefs.weight", ".altup.correction_coefs.weight",
)  # fmt: skip
"""Ends of the names of matrices that mix the streams: they are float32, and never quantized."""


@dataclass(frozen=True, slots=True)
class StreamEnds:
    """Matrices [hidden, hidden] of all streams but the first: `into` makes them of the embedding, `out` turns them back
    before they are averaged."""

    into: tuple[Weight, ...]
    out: tuple[Weight, ...]

    def begun(self, embedded: Tensor) -> Tensor:
        """[T, hidden] → [N, T, hidden]."""
        return torch.stack([embedded, *(_as_large(linear(embedded, one), embedded) for one in self.into)])

    def ended(self, streams: Tensor) -> Tensor:
        """[N, T, hidden] → [T, hidden]."""
        first, *others = streams
        turned = [_as_large(linear(one, weight), first) for one, weight in zip(others, self.out, strict=True)]
        return torch.stack([first, *turned]).mean(dim=0)


@dataclass(frozen=True, slots=True)
class Streams:
    """A layer's. `router` is [N, hidden], `prediction` [N × N, N], `correction` [N, N], `scale` [hidden] of what the
    layer adds last; `left` [rank, hidden], `right` [hidden, rank]. All but left and right are float32."""

    router: Tensor
    router_norm: Tensor
    prediction: Tensor
    correction: Tensor
    scale: Tensor | None
    left: Weight
    right: Weight
    sum_norm: Tensor

    def predicted(self, streams: Tensor, active: int, eps: float) -> Tensor:
        """[N, T, hidden] → the same."""
        count = len(streams)
        mixing = functional.linear(self._kinds(streams[active], eps), self.prediction).unflatten(1, (count, count))
        return streams + torch.einsum("nth,tmn->mth", streams.float(), mixing).to(streams.dtype)

    def corrected(self, predicted: Tensor, computed: Tensor, active: int, eps: float) -> Tensor:
        """The prediction after the active stream has been `computed` [T, hidden]."""
        shares = functional.linear(self._kinds(computed, eps), self.correction) + 1
        innovation = (computed - predicted[active]).float()
        return predicted + (innovation * shares.t()[..., None]).to(predicted.dtype)

    def summed(self, normed: Tensor, eps: float) -> Tensor:
        """What is beside attention: [T, hidden] → [T, hidden]."""
        given = linear(linear(normed, self.left), self.right)
        return normed + functional.rms_norm(given.float(), self.sum_norm.shape, self.sum_norm, eps).to(given.dtype)

    def _kinds(self, rows: Tensor, eps: float) -> Tensor:
        """[T, hidden] → [T, N], float32."""
        normed = functional.rms_norm(rows.float(), self.router_norm.shape, self.router_norm, eps)
        return torch.tanh(functional.linear(normed / rows.shape[-1], self.router))


def read_ends(config: "ModelShape", shape: StreamShape, tensor: Callable[[str, tuple[int, ...]], Any]) -> StreamEnds:
    square, others = (config.hidden_size, config.hidden_size), range(shape.count - 1)
    return StreamEnds(
        into=tuple(tensor(f"model.altup_projections.{one}.weight", square) for one in others),
        out=tuple(tensor(f"model.altup_unembed_projections.{one}.weight", square) for one in others),
    )


def read_streams(config: "ModelShape", shape: StreamShape, read: Callable[..., Any]) -> Streams:
    """`read(name, *sizes)` returns the layer's tensor of that name and shape."""
    hidden, count = config.hidden_size, shape.count
    return Streams(
        router=read("altup.modality_router.weight", count, hidden),
        router_norm=read("altup.router_norm.weight", hidden),
        prediction=read("altup.prediction_coefs.weight", count * count, count),
        correction=read("altup.correction_coefs.weight", count, count),
        scale=read("altup.correct_output_scale", hidden) if shape.scaled else None,
        left=read("laurel.linear_left.weight", shape.rank, hidden),
        right=read("laurel.linear_right.weight", hidden, shape.rank),
        sum_norm=read("laurel.post_laurel_norm.weight", hidden),
    )


def _as_large(rows: Tensor, other: Tensor) -> Tensor:
    """`rows` with the mean square of `other`."""
    target = other.float().square().mean(dim=-1, keepdim=True).sqrt()
    own = rows.float().square().mean(dim=-1, keepdim=True).clamp(min=1e-5).sqrt()
    return (rows.float() * target / own).to(rows.dtype)
