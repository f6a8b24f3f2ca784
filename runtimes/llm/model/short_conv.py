"""Short convolutions in place of attention, as in LFM2 (https://arxiv.org/abs/2511.23404).

A token's output is a weighted sum of its own input and of those just before it. The pages hold the input of every
position, as they hold keys and values. So chunks, cached prefixes, preemption and refused proposals need nothing else.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from runtimes.llm.model.matrix import Weight, linear
from runtimes.llm.sequence import Chunk


@dataclass(frozen=True, slots=True)
class ShortConv:
    """`into` is [3 × hidden, hidden], `kernel` [hidden, length] with the newest input last, `out` [hidden, hidden]."""

    into: Weight
    into_bias: Tensor | None
    kernel: Tensor
    kernel_bias: Tensor | None
    out: Weight
    out_bias: Tensor | None


@dataclass(frozen=True, slots=True)
class Recent:
    """`slots` [T, length] are the cache positions of each token's newest inputs, its own last; `there` [T, length]
    tells which exist."""

    slots: Tensor
    there: Tensor

    @classmethod
    def of(cls, chunks: Sequence[Chunk], block_size: int, length: int, device: torch.device) -> "Recent":
        positions = [
            [position - back for back in reversed(range(length))]
            for chunk in chunks
            for position in range(chunk.start, chunk.end)
        ]
        tables = [chunk.block_table for chunk in chunks for _ in chunk.token_ids]
        slots = [
            [table[max(at, 0) // block_size] * block_size + max(at, 0) % block_size for at in ats]
            for ats, table in zip(positions, tables, strict=True)
        ]
        return cls(torch.tensor(slots, device=device), torch.tensor(positions, device=device) >= 0)


def convolved(layer: ShortConv, rows: Tensor, inputs: Tensor, recent: Recent) -> Tensor:
    """[T, hidden] → [T, hidden]; stores the step's inputs in `inputs` [pages, page, hidden] of this layer."""
    before, after, own = linear(rows, layer.into, layer.into_bias).chunk(3, dim=-1)
    flat = inputs.view(-1, inputs.shape[-1])
    flat.index_copy_(0, recent.slots[:, -1], before * own)
    seen = flat[recent.slots].masked_fill(~recent.there[..., None], 0)
    summed = (seen.float() * layer.kernel.float().t()).sum(dim=1).to(rows.dtype)
    if layer.kernel_bias is not None:
        summed = summed + layer.kernel_bias
    return linear(after * summed, layer.out, layer.out_bias)
