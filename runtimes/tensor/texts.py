"""Large BYTES tensors without an object for each element.

Python makes and frees millions of objects only while it holds its lock, and each takes fifty bytes. So the serving
process leaves such a tensor in the protocol's binary form; the process that runs the model makes the objects.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, Final, TypeGuard, cast

import numpy as np
import numpy.typing as npt

from adapters.tensors import Data, join_bytes, split_bytes

MAX_ROWS: Final = 1 << 20
"""Tensors of more rows are not divided."""
LENGTH_BYTES: Final = 4
"""Bytes of an element beside its content."""
Array = npt.NDArray[Any]
_OBJECT: Final = np.dtype(object)


class Texts:
    """A BYTES tensor in binary form, with as much of an array's interface as schedulers use.

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
        """All elements in one dimension. It is not divided afterwards."""
        assert length == -1
        return Texts(self.data, (prod(self.shape),))

    def copy(self) -> Texts:
        """The same, without what it is a part of."""
        return Texts(bytes(self.data), self.shape, self.ends)

    def array(self) -> Array:
        """The elements as objects. Slow: not for the loop."""
        elements = np.empty(prod(self.shape), object)
        elements[:] = split_bytes(self.data, elements.size, "")
        return elements.reshape(self.shape)


def as_array(texts: Texts) -> Array:
    """The same for the type checker: schedulers pass arrays on, and a model never gets a `Texts`."""
    return cast("Array", texts)


def packed(array: Array) -> Texts:
    """An array of `bytes` in binary form. Slow: not for the loop."""
    elements = array.reshape(-1).tolist()
    rows = array.shape[0] if array.ndim else 0
    ends = None
    if 0 < rows <= MAX_ROWS and elements:
        width = len(elements) // rows
        sizes = np.fromiter(map(len, elements), np.int64, len(elements))
        ends = np.cumsum(sizes + LENGTH_BYTES)[width - 1 :: width]
    return Texts(join_bytes(elements), array.shape, ends)


def joined(arrays: Sequence[Array]) -> Array:
    """The length of the first dimension."""
    return np.concatenate([expanded(array) for array in arrays])


def expanded(array: Array) -> Array:
    """The array that models get."""
    return array.array() if is_texts(array) else array


def is_texts(array: object) -> TypeGuard[Texts]:
    """Whether it is in binary form."""
    return isinstance(array, Texts)
