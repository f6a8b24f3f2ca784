"""Outputs of a batch, cut for each member; large ones in threads, after the execution."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import NamedTuple

import numpy as np

from adapters import offload
from adapters.tensors import NO_PARAMETERS, Data, Tensor, join_bytes, split_bytes
from runtimes.tensor.configuration.model_config import ModelConfig
from runtimes.tensor.datatypes import DTYPES, datatype_of
from runtimes.tensor.deferred_input import composed
from runtimes.tensor.interfaces import Array, Tensors
from runtimes.tensor.off_loop import LARGE, off_loop, retrieve
from runtimes.tensor.scheduling.batch_inputs import BatchOutputs
from runtimes.tensor.scheduling.pending import PreparedRequest
from runtimes.tensor.texts import Texts, cut_texts, expanded, is_texts


class CutTexts(NamedTuple):
    """The lower corner of a large BYTES tensor."""

    texts: Texts
    corner: tuple[int, ...]


@dataclass(slots=True)
class UnfinishedTensor(Tensor):
    """An output whose `data` is copied later from its pieces, which follow each other."""

    pieces: Sequence[Array | CutTexts] = field(default=(), repr=False)


@dataclass(slots=True)
class UnevenTensor(UnfinishedTensor):
    """A counted output of a request that was computed in parts, whose rows end with the longest of each part."""

    parts: tuple[Tensor, ...] = field(default=(), repr=False)


def joined_uneven(parts: tuple[Tensor, ...]) -> UnevenTensor:
    """The rows of all parts, which are filled up to the longest of all when the tensor is finished."""
    first = parts[0]
    longest = max(part.shape[1] for part in parts)
    shape = (sum(part.shape[0] for part in parts), longest, *first.shape[2:])
    return UnevenTensor(first.name, first.datatype, shape, b"", first.parameters, (), parts)


def _filled(tensor: UnevenTensor) -> Data:
    """The data of an output in parts. Slow: it makes an object of each text."""
    array = composed([_array(part) for part in tensor.parts], DTYPES[tensor.datatype], tuple(tensor.shape))
    return join_bytes(list(array.reshape(-1))) if array.dtype.hasobject else array.reshape(-1).view(_BYTE).data


def _array(part: Tensor) -> Array:
    data = finished_here(part) if isinstance(part, UnfinishedTensor) else part.data
    if part.datatype != "BYTES":
        return np.frombuffer(data, DTYPES[part.datatype]).reshape(part.shape)
    texts = np.empty(math.prod(part.shape), object)
    texts[:] = split_bytes(data, texts.size, part.name)
    return texts.reshape(part.shape)


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
    if isinstance(tensor, UnevenTensor):
        return (np.frombuffer(_filled(tensor), _BYTE),)
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
    if isinstance(tensor, UnevenTensor):
        return Tensor(tensor.name, tensor.datatype, tensor.shape, await off_loop(lambda: _filled(tensor)))
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


_BYTE = np.dtype(np.uint8)


class ResponseOutlet:
    """Cuts the outputs of one model. They have the order of its configuration, or of the request."""

    def __init__(self, config: ModelConfig) -> None:
        self._batched = config.max_batch_size > 0
        self._scattered = BatchOutputs(config)
        self._datatypes = {spec.name: spec.datatype for spec in config.outputs}
        self.counted = config.counted
        self._variable = {
            spec.name: tuple(axis for axis, dim in enumerate(spec.dims, int(self._batched)) if dim == -1)
            for spec in config.outputs
        }

    def split(self, outputs: Tensors, members: list[PreparedRequest]) -> list[list[Tensor]]:
        """The outputs of each member, without a copy if possible. Rows beyond the last member are padding."""
        if not self._batched:
            return [self.whole(outputs, members[0])]
        cut = any(member.cuts for member in members)
        answers: list[list[Tensor]] = [[] for _ in members]
        for name in self._datatypes or outputs:
            if (array := outputs.get(name)) is None:
                continue  # nobody wants it
            datatype = self._datatypes.get(name) or datatype_of(array.dtype)
            if name in self._scattered:
                parts = self._scattered.scattered(name, expanded(array), [member.shapes or {} for member in members])
                for answer, member, part in zip(answers, members, parts, strict=True):
                    answer.append(self.tensor(name, datatype, part, member))
            elif cut or array.dtype.hasobject or name in self.counted:
                ends = accumulate([member.rows for member in members])
                for answer, member, end in zip(answers, members, ends, strict=True):
                    rows = slice(end - member.rows, end)
                    longest = self._longest(name, outputs, rows)
                    answer.append(self.tensor(name, datatype, array[rows], member, longest))
            else:
                _slice(name, datatype, array, members, answers)
        is_counted = bool(self.counted)
        is_plain = not cut and not is_counted
        return [
            answer if member.requested is None and is_plain else _response(answer, member, is_counted=is_counted)
            for answer, member in zip(answers, members, strict=True)
        ]

    def row(self, outputs: Tensors, row: int, member: PreparedRequest) -> list[Tensor]:
        """One row of a batch, as the only response of its request."""
        if self._batched:
            outputs = {name: array[row : row + 1] for name, array in outputs.items()}
        return self.whole(outputs, member)

    def whole(self, outputs: Tensors, member: PreparedRequest) -> list[Tensor]:
        """The whole batch for one request: a response of a decoupled model, with any number of rows."""
        answer = [
            self.tensor(name, self._datatypes.get(name) or datatype_of(outputs[name].dtype), outputs[name], member)
            for name in self._datatypes or outputs
            if name in outputs
        ]
        return _response(answer, member)

    def _longest(self, name: str, outputs: Tensors, rows: slice) -> int | None:
        """The length to which these rows of an output are cut; None if it is not counted."""
        if (count := self.counted.get(name)) is None:
            return None
        return int(outputs[count][rows].max(initial=0))

    def tensor(
        self, name: str, datatype: str, array: Array, member: PreparedRequest, longest: int | None = None
    ) -> Tensor:
        """One output of one request, whole; with `longest` no row of it is longer."""
        corner = self._corner(name, array.shape, member.cuts) if member.cuts else tuple(array.shape)
        if longest is not None:
            corner = (corner[0], longest, *corner[2:])
        if corner != array.shape:
            if is_texts(array):
                return UnfinishedTensor(name, datatype, corner, b"", NO_PARAMETERS, (CutTexts(array, corner),))
            array = array[tuple(map(slice, corner))]
            if array.nbytes >= LARGE and not array.flags.c_contiguous and datatype != "BYTES":
                return UnfinishedTensor(name, datatype, corner, b"", NO_PARAMETERS, (array,))
        if is_texts(array):
            return Tensor(name, datatype, array.shape, array.data, NO_PARAMETERS)
        if array.dtype == object:
            return Tensor(name, datatype, array.shape, join_bytes(list(array.reshape(-1))), NO_PARAMETERS)
        data = np.ascontiguousarray(array).reshape(-1).view(_BYTE).data
        return Tensor(name, datatype, array.shape, data, NO_PARAMETERS)

    def _corner(self, name: str, shape: tuple[int, ...], cuts: Mapping[int, tuple[int, int]]) -> tuple[int, ...]:
        """The shape without padding."""
        corner = list(shape)
        for axis in self._variable.get(name, ()):
            padded, own = cuts.get(axis, (-1, -1))
            if shape[axis] == padded:
                corner[axis] = own
        return tuple(corner)


def _slice(name: str, datatype: str, array: Array, members: list[PreparedRequest], answers: list[list[Tensor]]) -> None:
    """The bytes of one request in a shared buffer."""
    tail = array.shape[1:]
    row_bytes = array.nbytes // array.shape[0]
    data = array.reshape(-1).view(_BYTE).data
    at = 0
    for answer, member in zip(answers, members, strict=True):
        rows = member.rows
        end = at + rows * row_bytes
        answer.append(Tensor(name, datatype, (rows, *tail), data[at:end], NO_PARAMETERS))
        at = end


def _response(answer: list[Tensor], member: PreparedRequest, *, is_counted: bool = False) -> list[Tensor]:
    """The requested outputs."""
    if member.requested is not None:
        answer = _pick(answer, member.requested)
    return outputs_of(answer) if member.cuts or is_counted else answer


def _pick(answer: list[Tensor], requested: tuple[str, ...]) -> list[Tensor]:
    by_name = {tensor.name: tensor for tensor in answer}
    return [by_name[name] for name in requested if name in by_name]
