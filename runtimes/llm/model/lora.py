"""Adapters of low rank: what is added to the products of some sequences (Hu et al. 2021,
https://arxiv.org/abs/2106.09685).

A product W·x becomes W·x + up·(down·x), where `down` is [rank, in] and `up` [out, rank]. Matrices that are fused here,
such as queries, keys and values, have an addition for each of their parts.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

import torch
from torch import Tensor
from torch.nn import functional

from runtimes.llm.sequence import Chunk

MatrixName = Literal["qkv", "attention_out", "gate_up", "down"]
"""The fields of `Layer` that adapters may change."""


@dataclass(frozen=True, slots=True)
class LowRank:
    """The addition to the outputs from `first` on. The adapter's own factor is in `up` [out, rank]; `down` is
    [rank, in]."""

    first: int
    down: Tensor
    up: Tensor


LayerAdditions: TypeAlias = Mapping[MatrixName, Sequence[LowRank]]


@dataclass(frozen=True, slots=True, eq=False)
class LowRankAdapter:
    """One adapter, in float32 on the CPU or as an executor computes with it. `digest` is that of its numbers."""

    layers: Sequence[LayerAdditions]
    digest: bytes

    def to(self, dtype: torch.dtype, device: torch.device) -> "LowRankAdapter":
        """The same numbers in `dtype` on `device`."""

        def moved(one: LowRank) -> LowRank:
            return replace(one, down=one.down.to(device, dtype), up=one.up.to(device, dtype))

        layers = [{name: [moved(one) for one in ones] for name, ones in layer.items()} for layer in self.layers]
        return replace(self, layers=layers)


AdaptedRows: TypeAlias = Sequence[tuple[LowRankAdapter, Tensor]]
"""Each adapter of a step, and its rows, int64."""


def adapted_rows(chunks: Sequence[Chunk], device: torch.device) -> AdaptedRows:
    """The rows of each adapter in a step of `chunks`; empty without one."""
    rows: dict[LowRankAdapter, list[int]] = {}
    first = 0
    for chunk in chunks:
        if isinstance(chunk.adapter, LowRankAdapter):
            rows.setdefault(chunk.adapter, []).extend(range(first, first + len(chunk.token_ids)))
        first += len(chunk.token_ids)
    return [(adapter, torch.tensor(own, device=device)) for adapter, own in rows.items()]


def add_low_rank(outputs: Tensor, inputs: Tensor, adapted: AdaptedRows, layer: int, matrix: MatrixName) -> None:
    """Add to `outputs` [T, out] what the adapters of its rows make of `inputs` [T, in]."""
    for adapter, rows in adapted:
        additions = adapter.layers[layer].get(matrix)
        if additions is None:
            continue
        own = inputs[rows]
        for one in additions:
            part = outputs[:, one.first : one.first + len(one.up)]
            part.index_add_(0, rows, functional.linear(functional.linear(own, one.down), one.up))
