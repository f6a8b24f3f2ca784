"""TorchServe's inference API, over HTTP and gRPC, and its management API beside it."""

from typing import Literal, Self

from pydantic import Field, model_validator

from config.protocols.apps import DeclaredTensors
from config.schema.text import Secret


class ManagedByTorchServe(DeclaredTensors):
    """What both wires have."""

    management_port: int | None = Field(None, ge=1, le=65535)
    """Port of the management API (HTTP, mostly 8081), at the endpoint's host: for readiness of each model, versions,
    loading and unloading. When absent none of these is asked for."""
    management_key: Secret | None = None
    """Token of the management API; the pool's ``key`` is the one for inference."""

    @property
    def metrics_key(self) -> Secret | None:
        return self.management_key

    @model_validator(mode="after")
    def _effective(self) -> Self:
        if self.management_key is not None and self.management_port is None:
            raise ValueError("management_key has no effect without management_port")
        return self


class TorchServeProtocol(ManagedByTorchServe):
    """``/predictions/NAME``."""

    name: Literal["torchserve"]
    """TorchServe's REST API."""


class TorchServeGrpcProtocol(ManagedByTorchServe):
    """``org.pytorch.serve.grpc.inference.InferenceAPIsService``."""

    has_paths = False

    name: Literal["torchserve-grpc"]
    """TorchServe's gRPC API."""
    input: str = Field("data", min_length=1, max_length=128)
    """The name under which a handler finds the body."""
    streaming: bool = False
    """Whether handlers answer in pieces, so that they are asked by ``StreamPredictions``. A handler that does not loses
    its worker when it is asked so."""
