"""The parameters that the Open Inference Protocol and Triton's extensions define, and the type of each.

A value of another type is refused. Parameters with other names are the model's own, of any type.
"""

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from adapters.errors import CallerError, Unsupported
from adapters.tensors import (
    BINARY,
    BINARY_OUTPUT,
    CLASSES,
    EMPTY_FINAL,
    SHARED_MEMORY,
    Parameters,
)

MOST = 2**64 - 1
Fits = Callable[[Any], bool]


def _is_flag(value: Any) -> bool:
    return isinstance(value, bool)


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MOST


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_id(value: Any) -> bool:
    return _is_count(value) or _is_text(value)


_FLAG, _COUNT, _TEXT = (_is_flag, "true or false"), (_is_count, "a whole number of 0 or more"), (_is_text, "a string")
_MEMORY = {SHARED_MEMORY: _TEXT, "shared_memory_byte_size": _COUNT, "shared_memory_offset": _COUNT}


class MemoryRegion(msgspec.Struct, gc=False):
    """The parameter of a tensor in shared memory; empty without it."""

    shared_memory_region: msgspec.Raw = msgspec.Raw()


OF_A_REQUEST: Mapping[str, tuple[Fits, str]] = {
    "sequence_id": (_is_id, "a whole number of 0 or more, or a string"),
    "sequence_start": _FLAG,
    "sequence_end": _FLAG,
    "priority": _COUNT,
    "timeout": _COUNT,
    BINARY_OUTPUT: _FLAG,
    EMPTY_FINAL: _FLAG,
}
OF_AN_INPUT: Mapping[str, tuple[Fits, str]] = _MEMORY
OF_AN_OUTPUT: Mapping[str, tuple[Fits, str]] = {**_MEMORY, CLASSES: _COUNT, BINARY: _FLAG}


def check(parameters: Parameters, declared: Mapping[str, tuple[Fits, str]] = OF_A_REQUEST, of: str = "") -> None:
    """Raise `CallerError` for a parameter with a value of the wrong type. `of` names the input or output."""
    for name in parameters.keys() & declared.keys():
        fits, kind = declared[name]
        if not fits(parameters[name]):
            where = f" of `{of}`" if of else ""
            raise CallerError(f"invalid value type for '{name}' parameter{where}, expected {kind}", param=name)


def in_shared_memory() -> Unsupported:
    """The error of a gateway for a tensor in shared memory: its clients share no memory with its servers."""
    return Unsupported("A gateway takes no tensors in shared memory: send the data.", param=SHARED_MEMORY)
