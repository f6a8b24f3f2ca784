"""Declared tensors, for a model whose servers do not report its tensors."""

from typing import Annotated, Literal

from pydantic import Field

from config.schema.section import Section

Dim = Annotated[int, Field(ge=-1)]


class TensorConfig(Section):
    """An input or an output of a model."""

    name: str = Field(min_length=1, max_length=256)
    """Name at the model."""
    datatype: Literal[
        "BOOL",
        "UINT8",
        "UINT16",
        "UINT32",
        "UINT64",
        "INT8",
        "INT16",
        "INT32",
        "INT64",
        "FP16",
        "FP32",
        "FP64",
        "BYTES",
    ]
    """Datatype of the Open Inference Protocol; text is BYTES."""
    shape: tuple[Dim, ...] = Field(max_length=32)
    """Dimensions, the batch dimension first if there is one; -1 is any length."""
