"""Triton's classification extension: an output as its highest values, each with its index and its label."""

from __future__ import annotations

import numpy as np

from adapters.errors import CallerError
from adapters.tensors import CLASSES, ITEM_SIZE, Parameters, Tensor, join_bytes
from runtimes.tensor.backends.base import Array
from runtimes.tensor.datatypes import DTYPES, bf16_to_fp32


def requested_classes(parameters: Parameters, name: str) -> int:
    """The number of classes that a request requires, 0 for none. Raises `CallerError`."""
    count = parameters.get(CLASSES, 0)
    if type(count) is not int or count < 0:
        raise CallerError(f"The `{CLASSES}` of output `{name}` is a number of classes.", param=name)
    return count


def classify(tensor: Tensor, count: int, labels: tuple[str, ...], *, batched: bool) -> Tensor:
    """`VALUE:INDEX:LABEL` of the highest values, of each row where the model has rows. Raises `CallerError`."""
    if tensor.datatype not in ITEM_SIZE:
        raise CallerError(f"Output `{tensor.name}` is text, which has no highest values.", param=tensor.name)
    values: Array = np.frombuffer(tensor.data, DTYPES[tensor.datatype])
    if tensor.datatype == "BF16":
        values = bf16_to_fp32(values)
    rows = tensor.shape[0] if batched and tensor.shape else 1
    table = values.reshape(rows, -1)
    texts = [_text(row, index, labels) for row in table for index in _highest(row, count)]
    width = min(count, table.shape[1])
    shape = (rows, width) if batched else (width,)
    return Tensor(tensor.name, "BYTES", shape, join_bytes(texts))


def _highest(row: Array, count: int) -> Array:
    """The indices of the highest scores in descending order; equal scores in their order. NaN is the lowest."""
    keys = np.where(np.isnan(row), -np.inf, row) if row.dtype.kind == "f" else row
    order = np.argsort(keys[::-1], kind="stable")[::-1]
    return len(row) - 1 - order[:count]


def _text(row: Array, index: int, labels: tuple[str, ...]) -> bytes:
    value = row[index]
    text = f"{float(value):f}" if row.dtype.kind == "f" else str(int(value))
    label = f":{labels[index]}" if index < len(labels) else ""
    return f"{text}:{index}{label}".encode()
