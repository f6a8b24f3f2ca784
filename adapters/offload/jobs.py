"""What a worker process is given, and what it answers."""

from typing import Any, NamedTuple

from adapters.errors import InferenceError


class CodecCall(NamedTuple):
    """One call."""

    function: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


class Failed(NamedTuple):
    """An `InferenceError` that the function raised."""

    kind: type[InferenceError]
    fields: dict[str, Any]
    """Its own attributes."""


class MemoryExceeded(NamedTuple):
    """The job needs more memory than the worker may take."""


class Crashed(NamedTuple):
    """Any other exception: an error in our code."""

    text: str


class Done(NamedTuple):
    """The function returned."""

    value: Any


Outcome = Done | Failed | MemoryExceeded | Crashed
