"""Ray Serve's applications, over HTTP and gRPC."""

from typing import Literal, Self

from pydantic import Field, model_validator

from config.protocols.apps import AppPath, DeclaredTensors, HeaderName
from config.protocols.base import ProtocolConfig
from config.schema.text import Secret


class RayServeProtocol(DeclaredTensors):
    """An application below its route prefix, which is the path of the endpoint's URL."""

    name: Literal["ray-serve"]
    """Ray Serve's HTTP proxy."""
    path: AppPath = "/"
    """Below the route prefix: where tensors are sent to, by POST."""
    headers: tuple[HeaderName, ...] = ()
    """Of a client's request, those that the application gets beside Content-Type and Accept."""
    answer_headers: tuple[HeaderName, ...] = ()
    """Of the application's answer, those that the client gets beside Content-Type."""
    multiplexed: bool = False
    """Whether the model's name is the id of a multiplexed model, and sent as ``serve_multiplexed_model_id``."""
    application: str | None = Field(None, min_length=1, max_length=256)
    """Its name, for the Serve REST API. When absent the pool's ``model``, or the model's name."""
    dashboard_port: int | None = Field(None, ge=1, le=65535)
    """Port of the Serve REST API, mostly 8265, at the endpoint's host. With it an endpoint is healthy while its proxy
    has a route for the application, and that is ``RUNNING``; without it, while there is the route."""
    dashboard_token: Secret | None = None
    """Ray's own token, for clusters with ``RAY_AUTH_MODE=token``."""

    @model_validator(mode="after")
    def _effective(self) -> Self:
        if "path" in self.model_fields_set and not self.inputs:
            raise ValueError("path has no effect: no inputs are declared")
        for name in ("application", "dashboard_token"):
            if name in self.model_fields_set and self.dashboard_port is None:
                raise ValueError(f"{name} has no effect without dashboard_port")
        return self


class RayServeGrpcProtocol(ProtocolConfig):
    """Calls of an application's own services, whose messages are its own business."""

    serves = frozenset({"app"})
    has_paths = False

    name: Literal["ray-serve-grpc"]
    """Ray Serve's gRPC proxy."""
    application: str | None = Field(None, min_length=1, max_length=256)
    """Its name. When absent, the model's."""
    multiplexed: bool = False
    """Whether the model's name is the id of a multiplexed model."""
