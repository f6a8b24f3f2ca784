"""BentoML's services."""

from typing import Literal, Self

from pydantic import model_validator

from config.protocols.base import ProtocolConfig
from config.protocols.tensors import TensorConfig


class BentoMLProtocol(ProtocolConfig):
    """``POST /METHOD``: a model's name is a method's, or its route; ``/schema.json`` tells what it takes."""

    serves = frozenset({"tensors", "app"})

    name: Literal["bentoml"]
    """BentoML's HTTP services."""
    inputs: tuple[TensorConfig, ...] = ()
    """Arguments whose datatype and shape the service does not tell, since they are not annotated: of the methods that
    have an argument of the name."""
    outputs: tuple[TensorConfig, ...] = ()
    """The same of answers. An answer that has no name gets that of the only output."""

    @model_validator(mode="after")
    def _once(self) -> Self:
        for tensors in (self.inputs, self.outputs):
            if len({tensor.name for tensor in tensors}) != len(tensors):
                raise ValueError("two tensors have the same name")
        return self
