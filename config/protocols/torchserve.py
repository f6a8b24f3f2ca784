"""TorchServe's inference API over HTTP and gRPC, and its management API."""

from typing import Literal, Self

from pydantic import Field, model_validator

from config.protocols.apps import DeclaredTensors
from config.schema.text import Secret


class ManagedByTorchServe(DeclaredTensors):
    """The options of both wires."""

    management_port: int | None = Field(None, ge=1, le=65535)
    """Port of the management API (HTTP, usually 8081) at the endpoint's host, for readiness, versions, loading and
    unloading of models. When absent these are not available."""
    management_key: Secret | None = None
    """Token of the management API. The pool's ``key`` is the key for inference."""

    @property
    def metrics_key(self) -> Secret | None:
        return self.management_key

    @model_validator(mode="after")
    def _effective(self) -> Self:
        if self.management_key is not None and self.management_port is None:
            raise ValueError("management_key has no effect without management_port")
        return self


class TorchServeProtocol(ManagedByTorchServe):
    """TorchServe's REST API, ``/predictions/NAME``."""

    name: Literal["torchserve"]
    """Selects this protocol."""


class TorchServeGrpcProtocol(ManagedByTorchServe):
    """TorchServe's gRPC API, ``org.pytorch.serve.grpc.inference.InferenceAPIsService``."""

    has_paths = False

    name: Literal["torchserve-grpc"]
    """Selects this protocol."""
    input: str = Field("data", min_length=1, max_length=128)
    """Name under which a handler receives the body."""
    streaming: bool = False
    """Whether handlers stream, and are called by ``StreamPredictions``. A handler that does not stream loses its worker
    when called this way."""
