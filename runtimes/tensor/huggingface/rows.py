"""What all tasks have in common: rows to items of a pipeline, and its results to arrays."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Mapping, Sequence
from typing import Any, ClassVar, Final

import msgspec
import numpy as np

from adapters.errors import CallerError, TooLarge
from runtimes.tensor.huggingface.folder import PipelineSettings
from runtimes.tensor.interfaces import Array, Tensors

MAX_TEXT: Final = 1 << 20
"""Bytes of one text, before its tokens are counted."""


class PipelineTask(ABC):
    """The task of one loaded pipeline. An item is what the pipeline takes for a row, a result what it answers."""

    names: ClassVar[Mapping[str, type[Any]]]
    """Outputs beside the JSON that have one value for each row, with their types in numpy; object for texts."""

    def __init__(self, pipe: Any, settings: PipelineSettings) -> None:
        self.pipe = pipe
        self.settings = settings

    @property
    @abstractmethod
    def examples(self) -> Sequence[Any]:
        """Items of different sizes, for the trial at load."""

    @abstractmethod
    def read(self, inputs: Tensors, row: int) -> Any:
        """The item of a row. Raises `CallerError`."""

    @abstractmethod
    def size(self, item: Any) -> Hashable:
        """Equal for items that need no padding beside each other."""

    def cost(self, item: Any) -> int:
        """Bytes of an item, to bound those that are held at a time."""
        return 0

    def compute(self, items: list[Any], *, together: bool) -> list[Any]:
        """The results of items, which are one batch of the model if `together`."""
        from transformers import Pipeline

        # The base class: those of some tasks change the form of the result with the number of items.
        results: list[Any] = Pipeline.__call__(self.pipe, items, batch_size=len(items) if together else 1)
        return results

    @abstractmethod
    def values(self, result: Any) -> Mapping[str, Any]:
        """The outputs of a row, by name."""

    @abstractmethod
    def outputs(self, rows: Sequence[Mapping[str, Any] | None]) -> dict[str, Array]:
        """The outputs of a batch. None is a row that was refused."""


def text_of(inputs: Tensors, name: str, row: int) -> str:
    """The text of a row. Raises `CallerError`."""
    if (array := inputs.get(name)) is None:
        raise CallerError(f"`{name}` is missing: send one for each row.", param=name)
    content = array[row]
    if len(content) > MAX_TEXT:
        raise TooLarge(f"`{name}` has {len(content)} bytes, and {MAX_TEXT} is the most.", param=name)
    try:
        return str(content, "utf-8")
    except UnicodeDecodeError as error:
        raise CallerError(f"`{name}` is not UTF-8 text: byte {error.start} is wrong.", param=name) from None


def json_of(value: object) -> bytes:
    """JSON; numbers that are not finite are null."""
    return msgspec.json.encode(value)


def named(rows: Sequence[Mapping[str, Any] | None], name: str) -> list[Any]:
    """An output of each row; None for a row that was refused."""
    return [None if row is None else row[name] for row in rows]


def column(values: Sequence[Any], kind: type[Any]) -> Array:
    """One value for each row. Texts become bytes; None is zero or empty."""
    if kind is object:
        texts = np.empty(len(values), object)
        texts[:] = [_binary(value) for value in values]
        return texts
    return np.array([0 if value is None else value for value in values], kind)


def ragged(values: Sequence[Any], kind: type[Any], tail: tuple[int, ...] = ()) -> Array:
    """Rows of different lengths, filled up to the longest with zeros or empty texts: [rows, longest, *tail]."""
    longest = max((len(value) for value in values if value is not None), default=0)
    array: Array = np.full((len(values), longest, *tail), b"" if kind is object else 0, kind)
    for row, value in enumerate(values):
        if value is not None and len(value):
            array[row, : len(value)] = _binaries(value) if kind is object else value
    return array


def _binaries(value: Any) -> Array:
    array: Array = np.array(value, object)
    flat = np.empty(array.size, object)
    flat[:] = [_binary(one) for one in array.ravel().tolist()]
    return flat.reshape(array.shape)


def _binary(value: object) -> bytes:
    return b"" if value is None else value if isinstance(value, bytes) else str(value).encode(errors="replace")
