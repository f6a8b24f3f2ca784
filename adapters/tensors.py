"""Tensors as plain data, in the terms of the Open Inference Protocol, without numpy and I/O.

`data` is always the protocol's binary form: little-endian, row-major, without padding. A BOOL is one byte; an element
of BYTES is its length in four bytes, then its content.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from struct import Struct
from types import MappingProxyType

from adapters.errors import CallerError

Parameter = str | int | float | bool
Parameters = Mapping[str, Parameter]
Data = bytes | memoryview

NO_PARAMETERS: Parameters = MappingProxyType({})
"""The shared default of tensors and requests without parameters."""

BINARY = "binary_data"
BINARY_SIZE = "binary_data_size"
BINARY_OUTPUT = "binary_data_output"
CLASSES = "classification"
SHARED_MEMORY = "shared_memory_region"
FINAL = "triton_final_response"
"""A parameter of a streamed response: whether it is the last response to its request."""
EMPTY_FINAL = "triton_enable_empty_final_response"
"""A parameter of a request: if no response is marked as the last, an empty last response follows."""
FRAMING = frozenset({BINARY_SIZE, BINARY, BINARY_OUTPUT})
"""Parameters of the encoding of one message, which do not belong to the tensor."""

ITEM_SIZE: dict[str, int] = {
    "BOOL": 1,
    "UINT8": 1, "UINT16": 2, "UINT32": 4, "UINT64": 8,
    "INT8": 1, "INT16": 2, "INT32": 4, "INT64": 8,
    "FP16": 2, "FP32": 4, "FP64": 8, "BF16": 2,
}  # fmt: skip
"""Bytes of one element; BYTES has no fixed size."""

DATATYPES = frozenset({*ITEM_SIZE, "BYTES"})
MAX_ELEMENTS = 1 << 40
"""Limit for tensors without data: a dimension of zero must not hide other dimensions of an impossible size."""

_LENGTH = Struct("<I")
_AT_ONCE = 65536
"""Number of elements that are joined at once."""


@dataclass(slots=True)
class Tensor:
    """One input or output. A tensor in shared memory has `parameters` that locate it, and no `data`."""

    name: str
    datatype: str
    shape: tuple[int, ...]
    data: Data = field(repr=False)
    parameters: Parameters = field(default_factory=lambda: NO_PARAMETERS)


@dataclass(slots=True)
class RequestedOutput:
    """An output that the request names, and its parameters."""

    name: str
    parameters: Parameters = field(default_factory=lambda: NO_PARAMETERS)


@dataclass(slots=True)
class Inference:
    """An inference request. An empty `model_version` leaves the choice to the model's version policy.

    `parameters` apply to the whole request: `sequence_id`, `sequence_start`, `sequence_end`, `priority`, `timeout`
    (µs) and the model's own parameters.
    """

    model_name: str
    model_version: str = ""
    id: str = ""
    parameters: Parameters = field(default_factory=lambda: NO_PARAMETERS)
    inputs: list[Tensor] = field(default_factory=list)
    outputs: list[RequestedOutput] = field(default_factory=list)


@dataclass(slots=True)
class Inferred:
    """One response of a model."""

    model_name: str
    model_version: str = ""
    id: str = ""
    parameters: Parameters = field(default_factory=lambda: NO_PARAMETERS)
    outputs: list[Tensor] = field(default_factory=list)


def element_count(shape: tuple[int, ...]) -> int:
    """The number of elements of a tensor with this shape; 1 for a scalar."""
    return prod(shape)


def byte_size(datatype: str, shape: tuple[int, ...]) -> int:
    """The length of a tensor's data in bytes, for a datatype with a fixed size."""
    return prod(shape) * ITEM_SIZE[datatype]


def requested_outputs(inference: Inference, outputs: list[Tensor]) -> list[Tensor]:
    """The outputs that a request names, in its order, or all outputs if it names none. Raises `CallerError`."""
    if not inference.outputs:
        return outputs
    by_name = {tensor.name: tensor for tensor in outputs}
    for output in inference.outputs:
        if output.name not in by_name:
            message = f"The model has no output `{output.name[:64]}`. It has: {', '.join(by_name)}."
            raise CallerError(message, param=output.name[:64])
    return [by_name[output.name] for output in inference.outputs]


def join_bytes(elements: Sequence[bytes]) -> bytes:
    """Encode BYTES elements in the binary form."""
    if len(elements) <= _AT_ONCE:
        return _joined(elements)
    # In pieces: the list of all lengths would take more memory than the elements.
    return b"".join([_joined(elements[at : at + _AT_ONCE]) for at in range(0, len(elements), _AT_ONCE)])


def _joined(elements: Sequence[bytes]) -> bytes:
    pack = _LENGTH.pack
    return b"".join([part for element in elements for part in (pack(len(element)), element)])


def split_bytes(data: Data, count: int, name: str) -> list[bytes]:
    """Decode the elements of a BYTES tensor. Raises `CallerError` unless the tensor has exactly `count` elements."""
    view = memoryview(data)
    end, at = len(view), 0
    elements: list[bytes] = []
    add, unpack = elements.append, _LENGTH.unpack_from
    while at < end and len(elements) <= count:
        start = at + 4
        if start > end:
            raise _cut_length(name)
        at = start + unpack(view, at)[0]
        if at > end:
            raise _cut_element(name, at - start, end - start)
        add(bytes(view[start:at]))
    if len(elements) != count or at < end:
        raise _miscounted(name, len(elements), count, more=at < end)
    return elements


def row_ends(data: Data, count: int, rows: int, name: str) -> array[int]:
    """The end of each row in the data of a BYTES tensor. Raises `CallerError` like `split_bytes`."""
    view = memoryview(data)
    end, at, present = len(view), 0, 0
    ends, width, unpack = array("q"), count // rows, _LENGTH.unpack_from
    while at < end and present <= count:
        start = at + 4
        if start > end:
            raise _cut_length(name)
        at = start + unpack(view, at)[0]
        if at > end:
            raise _cut_element(name, at - start, end - start)
        present += 1
        if not present % width:
            ends.append(at)
    if present != count or at < end:
        raise _miscounted(name, present, count, more=at < end)
    return ends


def _cut_length(name: str) -> CallerError:
    return CallerError(f"BYTES tensor `{name}` ends within the length of an element.", param=name)


def _cut_element(name: str, size: int, left: int) -> CallerError:
    message = f"BYTES tensor `{name}` has an element of {size} bytes where {left} are left."
    return CallerError(message, param=name)


def _miscounted(name: str, present: int, count: int, *, more: bool) -> CallerError:
    held = f"more than {count}" if more else f"{present}"
    return CallerError(f"BYTES tensor `{name}` holds {held} elements, and its shape has {count}.", param=name)
