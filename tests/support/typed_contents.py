"""Typed contents of the Open Inference Protocol, as other clients and servers write them."""

from math import prod
from struct import unpack
from typing import Any

from adapters.tensors import Tensor, split_bytes
from adapters.wire.oip.proto_contents import FIELDS


def write(contents: Any, tensor: Tensor) -> None:
    """Fill typed contents with a tensor's elements."""
    field, code = FIELDS[tensor.datatype]
    count = prod(tensor.shape)
    if tensor.datatype == "BYTES":
        elements: Any = split_bytes(tensor.data, count, tensor.name)
    else:
        elements = unpack(f"<{count}{code}", tensor.data)
    getattr(contents, field).extend(elements)
