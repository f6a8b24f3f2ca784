"""Calls for a worker process, and their outcomes."""

from typing import Any, NamedTuple

from adapters.errors import InferenceError


class CodecCall(NamedTuple):
    """A call of a codec's function."""

    function: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


class Failed(NamedTuple):
    """An `InferenceError` that the function raised."""

    kind: type[InferenceError]
    fields: dict[str, Any]
    """The error's attributes."""


class MemoryExceeded(NamedTuple):
    """The job needs more memory than the worker may take."""


class Crashed(NamedTuple):
    """Any other exception: a defect."""

    text: str


class Done(NamedTuple):
    """The function returned."""

    value: Any


Outcome = Done | Failed | MemoryExceeded | Crashed
