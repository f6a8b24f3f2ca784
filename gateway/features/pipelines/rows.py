"""Rows of values: splits inputs by row, and joins outputs again."""

from __future__ import annotations

from collections.abc import Sequence

from adapters import offload
from adapters.assembly import join
from adapters.errors import CallerError
from adapters.tensors import ITEM_SIZE, Tensor, element_count, row_ends
from gateway.features.pipelines.values import UnusableValueError, Value, Values


def row_count(inputs: Values) -> int:
    """The number of rows, which is the same for all tensors and lists. Raises `UnusableValueError`."""
    counts = {name: _count(value) for name, value in inputs.items() if isinstance(value, Tensor | list)}
    if not counts:
        raise UnusableValueError("no input has rows: `each` needs a tensor or a list")
    if len(set(counts.values())) > 1:
        shown = ", ".join(f"`{name}` {count}" for name, count in counts.items())
        raise UnusableValueError(f"the inputs differ in their rows: {shown}")
    return next(iter(counts.values()))


def _count(value: Tensor | list[Value]) -> int:
    if isinstance(value, list):
        return len(value)
    if not value.shape:
        raise UnusableValueError(f"`{value.name}` has no dimension of rows")
    return value.shape[0]


async def rows_of(inputs: Values, count: int) -> Sequence[Values]:
    """The inputs of each row. Values other than tensors and lists are the same for all rows."""
    rows: list[dict[str, Value]] = [{} for _ in range(count)]
    for name, value in inputs.items():
        parts = await _split(value, count) if isinstance(value, Tensor) else value if isinstance(value, list) else None
        for index, row in enumerate(rows):
            row[name] = value if parts is None else parts[index]
    return rows


async def _split(tensor: Tensor, count: int) -> list[Tensor]:
    shape, data = (1, *tensor.shape[1:]), memoryview(tensor.data)
    if not count:
        return []
    ends: Sequence[int]
    if tensor.datatype == "BYTES":
        elements = element_count(tensor.shape)
        try:
            ends = await offload.run(len(data), row_ends, data, elements, count, tensor.name) if data else [0] * count
        except CallerError as error:
            raise UnusableValueError(error.message) from None
    else:
        width = element_count(shape) * ITEM_SIZE[tensor.datatype]
        if len(data) != width * count:
            raise UnusableValueError(f"`{tensor.name}` has {len(data)} bytes, which do not fit its shape")
        ends = [width * (index + 1) for index in range(count)]
    starts = [0, *ends[:-1]]
    return [
        Tensor(tensor.name, tensor.datatype, shape, data[start:end]) for start, end in zip(starts, ends, strict=True)
    ]


async def gathered(outputs: Sequence[Values]) -> dict[str, Value]:
    """The outputs of all rows: tensors joined along their first dimension, other values as lists.

    Raises `UnusableValueError` for rows that do not fit together.
    """
    if not outputs:
        return {}
    names = list(outputs[0])
    if any(list(output) != names for output in outputs):
        raise UnusableValueError("the outputs of the rows differ in their names")
    return {name: await joined(name, [output[name] for output in outputs]) for name in names}


async def joined(name: str, values: Sequence[Value]) -> Value:
    """One value from those of the rows."""
    tensors = [value for value in values if isinstance(value, Tensor)]
    if not tensors:
        return list(values)
    first = tensors[0]
    for tensor in tensors:
        if (tensor.datatype, tensor.shape[1:]) != (first.datatype, first.shape[1:]) or len(tensors) != len(values):
            raise UnusableValueError(f"the rows of `{name}` differ in datatype or shape")
    rows = sum(tensor.shape[0] if tensor.shape else 1 for tensor in tensors)
    return Tensor(name, first.datatype, (rows, *first.shape[1:]), await join([tensor.data for tensor in tensors]))
