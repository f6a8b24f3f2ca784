"""The places of a step's tokens for the kernels: tables of pages, and tiles of rows."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from runtimes.llm.cuda.attention import attend
from runtimes.llm.model.attention import Pages, ScoreOptions, SmallPages, store
from runtimes.llm.model.model_config import TextPiece
from runtimes.llm.sequence import Chunk

CHUNK_ROWS = 64
"""Rows of a tile of several tokens; of a single one, those of its group of heads."""
SMALLEST_TILE = 16
"""The fewest rows that a GPU multiplies at a time."""
TOKEN, POSITION, SLOT, LENGTH, TABLE = range(5)
"""Columns of a step of single tokens; the table takes the rest."""


@dataclass(frozen=True, slots=True)
class Tiles:
    """Parts of sequences that are computed alike."""

    sequences: Tensor
    firsts: Tensor
    rows: int
    segments: int


@dataclass(frozen=True, slots=True)
class CudaLayout:
    """See `cuda.attention.attend`. `slots` [T] is where each token's key and value go: page × B + offset."""

    slots: Tensor
    tables: Tensor
    starts: Tensor
    lengths: Tensor
    tiles: tuple[Tiles, ...]

    @classmethod
    def of(cls, chunks: Sequence[Chunk], block_size: int, group: int, device: torch.device) -> "CudaLayout":
        """The layout of `chunks`, in that order; `group` query heads share a key head."""
        width = max(len(chunk.block_table) for chunk in chunks)
        starts, slots = [0], []
        for chunk in chunks:
            starts.append(starts[-1] + len(chunk.token_ids))
            slots += [
                chunk.block_table[position // block_size] * block_size + position % block_size
                for position in range(chunk.start, chunk.end)
            ]
        tables = [[*chunk.block_table, *[0] * (width - len(chunk.block_table))] for chunk in chunks]
        return cls(
            torch.tensor(slots, device=device),
            _indices(tables, device),
            _indices(starts, device),
            _indices([chunk.end for chunk in chunks], device),
            tuple(_tiles(chunks, group, device)),
        )

    @classmethod
    def of_single_tokens(cls, step: Tensor, group: int, segments: int) -> "CudaLayout":
        """The layout of a `step` int32 [S, TABLE + pages] of one token a sequence. Does not wait for the GPU."""
        count = len(step)
        each = torch.arange(count + 1, dtype=torch.int32, device=step.device)
        tiles = Tiles(each[:-1], torch.zeros_like(each), _rows(group), segments)
        return cls(step[:, SLOT].long(), step[:, TABLE:], each, step[:, LENGTH].contiguous(), (tiles,))

    def attend(
        self, query: Tensor, key: Tensor | None, value: Tensor | None, keys: Pages, values: Pages, scores: ScoreOptions,
        sinks: Tensor | None = None,
    ) -> Tensor:  # fmt: skip
        """See `Attention.attend`."""
        if key is not None and value is not None:
            store(keys, self.slots, key)
            store(values, self.slots, value)
        scales = None
        if isinstance(keys, SmallPages) and isinstance(values, SmallPages):
            scales = keys.scales, values.scales
            keys, values = keys.codes, values.codes
        assert isinstance(keys, Tensor)
        assert isinstance(values, Tensor)
        assert not isinstance(scores.window, TextPiece)  # `ModelShape.for_torch_alone`
        query = query.contiguous()
        output = torch.empty_like(query)
        for tiles in self.tiles:
            attend(
                query, keys, values, scales, self.tables, self.starts, self.lengths, (tiles.sequences, tiles.firsts),
                output, rows=tiles.rows, segments=tiles.segments, window=scores.window,
                scale=scores.scale_of(query), soft_cap=scores.soft_cap, sinks=sinks,
            )  # fmt: skip
        return output


def _tiles(chunks: Sequence[Chunk], group: int, device: torch.device) -> list[Tiles]:
    """Tiles of single tokens, then tiles of several tokens."""
    made = []
    for single in (True, False):
        rows = _rows(group) if single else max(CHUNK_ROWS, _rows(group))
        pairs = [
            (sequence, first)
            for sequence, chunk in enumerate(chunks)
            if (len(chunk.token_ids) == 1) == single
            for first in range(0, len(chunk.token_ids), rows // group)
        ]
        if pairs:
            sequences, firsts = _indices(pairs, device).T.contiguous()
            made.append(Tiles(sequences, firsts, rows, 1))
    return made


def _rows(group: int) -> int:
    """Rows of a tile of one token."""
    return max(SMALLEST_TILE, 1 << (group - 1).bit_length())


def _indices(numbers: Sequence[object], device: torch.device) -> Tensor:
    return torch.tensor(numbers, dtype=torch.int32, device=device)
