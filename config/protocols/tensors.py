"""Tensors of a model whose servers do not tell of them."""

from typing import Annotated, Literal

from pydantic import Field

from config.schema.section import Section

Dim = Annotated[int, Field(ge=-1)]


class TensorConfig(Section):
    """An input or an output."""

    name: str = Field(min_length=1, max_length=256)
    """As the model knows it."""
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
    """In the words of the Open Inference Protocol; texts are BYTES."""
    shape: tuple[Dim, ...] = Field(max_length=32)
    """Its dimensions, a batch's first where there is one; -1 is any length."""
