"""Layers whose memory is a state of one size: the cache of states, and the way of a step's tokens through it.

Before the recurrence itself every channel is convolved over its last few inputs, which are a part of the state. Tokens
that are alone in their sequences' chunks take one step together. A longer chunk is cut into pieces where a copy of
the state is due. T is the number of tokens in a step, C of channels, K the length of the convolution.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional

from runtimes.llm.model.model_config import ModelShape
from runtimes.llm.sequence import Chunk
from runtimes.llm.states import StateUse


@dataclass(frozen=True, slots=True)
class LayerStates:
    """A layer's cache: `inputs` [slots, C, K - 1], the newest last, and `states` [slots, …], float32."""

    inputs: Tensor
    states: Tensor


class StateCache:
    """The states of all recurrent layers, not initialized: nothing is read that was not written for its sequence."""

    def __init__(self, config: ModelShape, num_slots: int, dtype: torch.dtype, device: torch.device) -> None:
        shape = config.recurrent
        assert shape is not None
        sizes = (len(config.recurrent_layers), num_slots)
        self.inputs = torch.empty(*sizes, shape.channels, shape.conv_length - 1, dtype=dtype, device=device)
        self.states = torch.empty(*sizes, *shape.state_size, dtype=torch.float32, device=device)

    def __getitem__(self, layer: int) -> LayerStates:
        return LayerStates(self.inputs[layer], self.states[layer])


@dataclass(frozen=True, slots=True)
class _Piece:
    """Rows `first` … `last` - 1 of the step, of one sequence. None begins with zeros."""

    first: int
    last: int
    source: int | None
    targets: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Recurrence:
    """The same for all layers of a step: single tokens, [n] each, and pieces of longer chunks."""

    rows: Tensor
    sources: Tensor
    begins: Tensor
    """Whether a row's state is zeros, [n]."""
    targets: Tensor
    pieces: tuple[_Piece, ...]

    @classmethod
    def of(cls, chunks: Sequence[Chunk], device: torch.device) -> "Recurrence":
        """A chunk without slots is alone in a cache of one slot."""
        singles: list[_Piece] = []
        longer: list[_Piece] = []
        first = 0
        for chunk in chunks:
            use = chunk.state or StateUse(0 if chunk.start else None, ((chunk.end, 0),))
            pieces = _pieces(chunk, use, first)
            single = len(chunk.token_ids) == 1 and len(pieces[0].targets) == 1
            (singles if single else longer).extend(pieces)
            first += len(chunk.token_ids)

        def tensor(numbers: list[int]) -> Tensor:
            return torch.tensor(numbers, dtype=torch.long, device=device)

        return cls(
            rows=tensor([piece.first for piece in singles]),
            sources=tensor([piece.source or 0 for piece in singles]),
            begins=torch.tensor([piece.source is None for piece in singles], dtype=torch.bool, device=device),
            targets=tensor([piece.targets[0] for piece in singles]),
            pieces=tuple(longer),
        )


def _pieces(chunk: Chunk, use: StateUse, first: int) -> list[_Piece]:
    pieces: list[_Piece] = []
    start, source = chunk.start, use.source
    for end in sorted({position for position, _ in use.ends}):
        targets = tuple(slot for position, slot in use.ends if position == end)
        pieces.append(_Piece(first, first + end - start, source, targets))
        first, start, source = first + end - start, end, targets[0]
    return pieces


class RecurrentCell(Protocol):
    """The recurrence of a layer in a step, after the convolution."""

    def once(self, rows: Tensor, mixed: Tensor, states: Tensor) -> tuple[Tensor, Tensor]:
        """A token of each of n sequences: `rows` [n] of the step, convolved `mixed` [n, C], `states` [n, …]. Returns
        the outputs [n, width] and the states after it."""

    def along(self, rows: slice, mixed: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        """The tokens `rows` of one sequence in order: `mixed` [t, C] and one state, to [t, width] and the last."""


def evolved(
    cell: RecurrentCell, inputs: Tensor, kernel: Tensor, bias: Tensor | None, cache: LayerStates, recurrence: Recurrence
) -> Tensor:
    """The outputs [T, width], float32, of `inputs` [T, C]. `kernel` is [C, K], float32, the newest input's last. The
    states in the cache become those after the step."""
    length = kernel.shape[1] - 1
    parts: list[tuple[Tensor | slice, Tensor]] = []
    if len(recurrence.rows):
        rows, sources, targets, begins = recurrence.rows, recurrence.sources, recurrence.targets, recurrence.begins
        before = cache.inputs[sources].masked_fill(begins[:, None, None], 0)
        seen = torch.cat([before, inputs[rows][..., None]], dim=2)
        summed = (seen.float() * kernel).sum(dim=2)
        states = cache.states[sources]
        states = states.masked_fill(begins.view(-1, *[1] * (states.dim() - 1)), 0)
        outputs, states = cell.once(rows, functional.silu(summed if bias is None else summed + bias), states)
        cache.inputs.index_copy_(0, targets, seen[..., 1:])
        cache.states.index_copy_(0, targets, states)
        parts.append((rows, outputs))
    for piece in recurrence.pieces:
        own, source = slice(piece.first, piece.last), piece.source
        before = torch.zeros_like(cache.inputs[0]) if source is None else cache.inputs[source]
        state = torch.zeros_like(cache.states[0]) if source is None else cache.states[source]
        seen = torch.cat([before, inputs[own].t()], dim=1)
        summed = functional.conv1d(seen.float()[None], kernel[:, None], bias, groups=len(kernel))[0].t()
        outputs, state = cell.along(own, functional.silu(summed), state)
        for target in piece.targets:
            cache.inputs[target] = seen[:, -length:]
            cache.states[target] = state
        parts.append((own, outputs))
    whole = parts[0][1].new_empty(len(inputs), parts[0][1].shape[1])
    for rows_of, outputs in parts:
        whole[rows_of] = outputs
    return whole
