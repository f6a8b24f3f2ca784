"""Large BYTES tensors without an object for each element.

Python makes and frees millions of objects only while it holds its lock, and each takes fifty bytes. So the serving
process leaves such a tensor in the protocol's binary form; the process that runs the model makes the objects.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from struct import Struct
from typing import Any, Final, TypeGuard, cast

import numpy as np
import numpy.typing as npt

from adapters.assembly import STEP, Assembly
from adapters.tensors import Data, join_bytes, split_bytes
from runtimes.tensor.deferred_input import composed, is_deferred

MAX_ROWS: Final = 1 << 20
"""Tensors of more rows are not divided."""
_LENGTH: Final = Struct("<I")
"""Precedes the content of an element."""
Array = npt.NDArray[Any]
_OBJECT: Final = np.dtype(object)


class Texts:
    """A BYTES tensor in binary form, with the interface of an array that schedulers use.

    `ends` has the offset in `data` at which each row ends; None if it is never divided.
    """

    __slots__ = ("data", "ends", "shape")
    dtype = _OBJECT

    def __init__(self, data: Data, shape: tuple[int, ...], ends: npt.NDArray[np.int64] | None = None) -> None:
        self.data = memoryview(data)
        self.shape = shape
        self.ends = ends

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: slice) -> Texts:
        start, stop, _ = rows.indices(self.shape[0])
        shape = (max(0, stop - start), *self.shape[1:])
        if shape == self.shape:
            return self
        if self.ends is None:
            raise ValueError(f"a tensor of {self.shape[0]} texts cannot be divided")
        begin = int(self.ends[start - 1]) if start else 0
        end = int(self.ends[stop - 1]) if stop > start else begin
        return Texts(self.data[begin:end], shape, self.ends[start:stop] - begin)

    def reshape(self, length: int) -> Texts:
        """Reshape to one dimension. The result is not divided afterwards."""
        assert length == -1
        return Texts(self.data, (prod(self.shape),))

    def copy(self) -> Texts:
        """The same texts, in separate memory."""
        return Texts(bytes(self.data), self.shape, self.ends)

    def array(self) -> Array:
        """The elements as objects. Slow: not for the loop."""
        elements = np.empty(prod(self.shape), object)
        elements[:] = split_bytes(self.data, elements.size, "")
        return elements.reshape(self.shape)


def as_array(texts: Texts) -> Array:
    """The same for the type checker: schedulers forward arrays, and a model never receives a `Texts`."""
    return cast("Array", texts)


def packed(array: Array) -> Texts:
    """An array of `bytes` in binary form. Slow: not for the loop."""
    elements = array.reshape(-1).tolist()
    rows = array.shape[0] if array.ndim else 0
    ends = None
    if 0 < rows <= MAX_ROWS and elements:
        width = len(elements) // rows
        sizes = np.fromiter(map(len, elements), np.int64, len(elements))
        ends = np.cumsum(sizes + _LENGTH.size)[width - 1 :: width].copy()  # contiguous, as frames write it
    return Texts(_in_steps(elements), array.shape, ends)


def _in_steps(elements: Sequence[bytes]) -> bytes:
    """`join_bytes` in copies of about 1 MiB, between which other threads run."""
    total = sum(map(len, elements))
    if total <= STEP:
        return join_bytes(elements)
    whole, count = Assembly(), max(1, len(elements) * STEP // total)
    for at in range(0, len(elements), count):
        group = elements[at : at + count]
        if sum(map(len, group)) <= 2 * STEP:
            whole.add(join_bytes(group))
            continue
        for element in group:
            whole.add(_LENGTH.pack(len(element)))
            for start in range(0, len(element), STEP):
                whole.add(memoryview(element)[start : start + STEP])
    return whole.finish()


def cut_texts(data: Data, shape: tuple[int, ...], corner: tuple[int, ...]) -> bytes:
    """The elements in the lower corner of a BYTES tensor in binary form. Slow: not for the loop."""
    whole = Texts(data, shape).array()
    return join_bytes(whole[tuple(map(slice, corner))].reshape(-1).tolist())


def joined(arrays: Sequence[Array]) -> Array:
    """The arrays that models get, one after the other along the first dimension. Slow: not for the loop."""
    return np.concatenate([expanded(array) for array in arrays])


def expanded(array: Array) -> Array:
    """The array that models get. Slow where the array is large and not yet in that form: not for the loop."""
    if is_texts(array):
        return array.array()
    if is_deferred(array):
        return composed([expanded(array.content)], array.dtype, array.shape)
    # Frameworks may read several elements at a time, and not all check the alignment.
    return array if array.flags.aligned else array.copy()


def is_texts(array: object) -> TypeGuard[Texts]:
    """Whether it is in binary form."""
    return isinstance(array, Texts)
