"""An answer in the parts that are compared, whatever its wire."""

from typing import Any, Literal

import msgspec

Data = bytes | memoryview
AnswerKind = Literal["text", "tensors", "json", "bytes"]


class ComparedTensor(msgspec.Struct, frozen=True):
    """An output in the binary form of the Open Inference Protocol: little-endian, row by row, without padding."""

    name: str
    datatype: str
    shape: tuple[int, ...]
    data: Data


class ComparedTool(msgspec.Struct, frozen=True):
    """A call of a tool. `arguments` is JSON as the model wrote it."""

    name: str
    arguments: str


class AnswerContent(msgspec.Struct, frozen=True, kw_only=True):
    """A whole answer. Only the parts of its kind are present."""

    status: int
    kind: AnswerKind
    body: bytes = b""
    texts: tuple[str, ...] = ()
    """The text of each choice."""
    tools: tuple[ComparedTool, ...] = ()
    tensors: tuple[ComparedTensor, ...] = ()
    value: Any = None
    """The decoded JSON."""
