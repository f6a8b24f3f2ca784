"""Large outputs that are cut or joined after their execution, and not on the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from adapters import offload
from adapters.tensors import Data, Tensor
from runtimes.tensor.interfaces import Array
from runtimes.tensor.off_loop import off_loop, retrieve
from runtimes.tensor.texts import Texts, cut_texts

_BYTE = np.dtype(np.uint8)


class CutTexts(NamedTuple):
    """The lower corner of a large BYTES tensor."""

    texts: Texts
    corner: tuple[int, ...]


@dataclass(slots=True)
class UnfinishedTensor(Tensor):
    """An output whose `data` is copied later from its pieces, which follow each other."""

    pieces: Sequence[Array | CutTexts] = field(default=(), repr=False)


class UnfinishedOutputs(list[Tensor]):
    """Outputs of a response, of which some are unfinished."""

    __slots__ = ("_finishing",)

    def __init__(self, outputs: Sequence[Tensor]) -> None:
        super().__init__(outputs)
        self._finishing: asyncio.Task[list[Tensor]] | None = None

    async def finished(self) -> list[Tensor]:
        """All outputs with their data. Copies once, for any number of callers. Raises `CapacityError`."""
        if self._finishing is None:
            self._finishing = asyncio.get_running_loop().create_task(self._finish())
            self._finishing.add_done_callback(retrieve)
        return list(await asyncio.shield(self._finishing))

    async def _finish(self) -> list[Tensor]:
        return [await _finished(output) if isinstance(output, UnfinishedTensor) else output for output in self]


def outputs_of(tensors: list[Tensor]) -> list[Tensor]:
    """The outputs of a response."""
    return UnfinishedOutputs(tensors) if any(isinstance(tensor, UnfinishedTensor) for tensor in tensors) else tensors


def pieces_of(tensor: Tensor) -> Sequence[Array | CutTexts]:
    """The data of an output, finished or not."""
    return tensor.pieces if isinstance(tensor, UnfinishedTensor) else (np.frombuffer(tensor.data, _BYTE),)


def finished_here(tensor: Tensor) -> Data:
    """The data of an output, in a process of a model, which has no loop that waits."""
    pieces = [
        np.frombuffer(cut_texts(piece.texts.data, piece.texts.shape, piece.corner), _BYTE)
        if isinstance(piece, CutTexts)
        else piece
        for piece in pieces_of(tensor)
    ]
    return _copied(pieces)


async def _finished(tensor: UnfinishedTensor) -> Tensor:
    pieces = [await _cut(piece) if isinstance(piece, CutTexts) else piece for piece in tensor.pieces]
    data = await off_loop(lambda: _copied(pieces))
    return Tensor(tensor.name, tensor.datatype, tensor.shape, data, tensor.parameters)


async def _cut(piece: CutTexts) -> Array:
    texts, corner = piece
    return np.frombuffer(await offload.run(len(texts.data), cut_texts, texts.data, texts.shape, corner), _BYTE)


def _copied(pieces: Sequence[Array]) -> Data:
    """The pieces in one buffer. numpy copies large arrays without Python's lock."""
    whole, at = np.empty(sum(piece.nbytes for piece in pieces), _BYTE), 0
    for piece in pieces:
        end = at + piece.nbytes
        whole[at:end].view(piece.dtype).reshape(piece.shape)[...] = piece
        at = end
    return whole.data
