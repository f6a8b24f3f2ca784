"""Large inputs whose copy is made where their batch is composed, and not on the event loop."""

from __future__ import annotations

from collections.abc import Iterable
from math import prod
from typing import Any, Final, TypeGuard, cast

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
LARGE: Final = 1 << 20
"""Bytes of an array from which its copy is deferred."""


class DeferredInput:
    """An input that will be padded or converted, with the interface of an array that schedulers use.

    `content` is an array or a `texts.Texts` that fills the lower corner of the result; zeros or empty texts fill the
    rest. A row of the result begins with the same row of the content.
    """

    __slots__ = ("content", "dtype", "shape")

    def __init__(self, content: Array, dtype: np.dtype[Any], shape: tuple[int, ...]) -> None:
        self.content = content
        self.dtype = dtype
        self.shape = shape

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: slice) -> DeferredInput:
        content = self.content[rows]
        return DeferredInput(content, self.dtype, (content.shape[0], *self.shape[1:]))

    def reshape(self, length: int) -> DeferredInput:
        """All elements in one dimension. The input has no padding."""
        assert length == -1
        assert self.content.shape == self.shape
        return DeferredInput(self.content.reshape(-1), self.dtype, (prod(self.shape),))


def deferred(content: Array, dtype: np.dtype[Any], shape: tuple[int, ...]) -> Array:
    """The same for the type checker, as `texts.as_array`."""
    return cast("Array", DeferredInput(content, dtype, shape))


def is_deferred(array: object) -> TypeGuard[DeferredInput]:
    """Whether its copy has not been made."""
    return isinstance(array, DeferredInput)


def padded(array: Array, shape: tuple[int, ...]) -> Array:
    """The array in the lower corner of zeros or empty texts. Slow for large arrays: not for the loop."""
    return composed([array], array.dtype, shape)


def composed(contents: Iterable[Array], dtype: np.dtype[Any], shape: tuple[int, ...]) -> Array:
    """The contents, one after the other along the first dimension, each padded to the other dimensions of `shape`."""
    whole: Array = np.full(shape, b"", object) if dtype.hasobject else np.zeros(shape, dtype)
    at = 0
    for content in contents:
        whole[at:][tuple(slice(size) for size in content.shape)] = content
        at += content.shape[0]
    return whole
