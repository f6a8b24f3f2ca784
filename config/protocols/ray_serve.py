"""Ray Serve's applications, over HTTP and gRPC."""

from typing import Literal, Self

from pydantic import Field, model_validator

from config.protocols.apps import AppPath, DeclaredTensors, HeaderName
from config.protocols.base import ProtocolConfig
from config.schema.text import Secret


class RayServeProtocol(DeclaredTensors):
    """An application of Ray Serve over HTTP, under its route prefix, which is the path of the endpoint's URL."""

    name: Literal["ray-serve"]
    """Selects this protocol."""
    path: AppPath = "/"
    """Path under the route prefix to which tensors are posted."""
    headers: tuple[HeaderName, ...] = ()
    """Headers of the client's request that are forwarded to the application, beside Content-Type and Accept."""
    answer_headers: tuple[HeaderName, ...] = ()
    """Headers of the application's response that are forwarded to the client, beside Content-Type."""
    multiplexed: bool = False
    """Whether the model's name is the id of a multiplexed model, sent as ``serve_multiplexed_model_id``."""
    application: str | None = Field(None, min_length=1, max_length=256)
    """Name of the application in the Serve REST API. When absent: the pool's ``model``, or the model's name."""
    dashboard_port: int | None = Field(None, ge=1, le=65535)
    """Port of the Serve REST API at the endpoint's host, usually 8265. With it, an endpoint is healthy while its proxy
    has a route to the application and the application is ``RUNNING``; without it, while the route exists."""
    dashboard_token: Secret | None = None
    """Ray's token, for clusters with ``RAY_AUTH_MODE=token``."""

    @model_validator(mode="after")
    def _effective(self) -> Self:
        if "path" in self.model_fields_set and not self.inputs:
            raise ValueError("path has no effect: no inputs are declared")
        for name in ("application", "dashboard_token"):
            if name in self.model_fields_set and self.dashboard_port is None:
                raise ValueError(f"{name} has no effect without dashboard_port")
        return self


class RayServeGrpcProtocol(ProtocolConfig):
    """Calls of an application's own gRPC services through Ray Serve's proxy. Messages are forwarded unchanged."""

    serves = frozenset({"app"})
    has_paths = False

    name: Literal["ray-serve-grpc"]
    """Selects this protocol."""
    application: str | None = Field(None, min_length=1, max_length=256)
    """Name of the application. The model's name when absent."""
    multiplexed: bool = False
    """Whether the model's name is the id of a multiplexed model."""
