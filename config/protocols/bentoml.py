"""BentoML's services."""

from typing import Literal, Self

from pydantic import model_validator

from config.protocols.base import ProtocolConfig
from config.protocols.tensors import TensorConfig


class BentoMLProtocol(ProtocolConfig):
    """BentoML's HTTP services: ``POST /METHOD``. A model's name is that of a method, or its route; ``/schema.json``
    describes its inputs."""

    serves = frozenset({"tensors", "app"})

    name: Literal["bentoml"]
    """Selects this protocol."""
    inputs: tuple[TensorConfig, ...] = ()
    """Arguments whose datatype and shape the service does not describe because they are not annotated, for all methods
    with an argument of the name."""
    outputs: tuple[TensorConfig, ...] = ()
    """The same for responses. A response without a name gets the name of the only output."""

    @model_validator(mode="after")
    def _once(self) -> Self:
        for tensors in (self.inputs, self.outputs):
            if len({tensor.name for tensor in tensors}) != len(tensors):
                raise ValueError("two tensors have the same name")
        return self
