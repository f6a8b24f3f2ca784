"""Servers of apps: HTTP with bodies of their own, and tensors if the file or the server declares them."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from config.schema.protocols.base import ProtocolConfig, Serves
from config.schema.protocols.tensors import DeclaredTensors, TensorConfig
from config.schema.text import Secret, Shape, Url

AppPath = Annotated[str, Shape(r"/[A-Za-z0-9._~!$&'()*+,;=:@%/-]{0,512}", "a path such as /predict")]
_NEVER = (
    "accept|accept-encoding|authorization|connection|content-encoding|content-length|content-type|expect|host|keep-alive"
    "|proxy-[a-z-]+|set-cookie|te|trailer|transfer-encoding|upgrade|x-api-key|x-headrace-[a-z-]+|x-request-id"
)
HeaderName = Annotated[
    str,
    Shape(
        rf"(?!(?:{_NEVER})$)[a-z0-9!#$%&'*+.^_`|~-]{{1,128}}",
        "a header's name in lower case, other than those that the gateway writes or removes itself",
    ),
]


class HttpProtocol(DeclaredTensors):
    """Any HTTP app, under the endpoint's path."""

    name: Literal["http"]
    """Selects this protocol."""
    path: AppPath = "/"
    """Path under the endpoint's to which tensors are posted."""
    headers: tuple[HeaderName, ...] = ()
    """Headers of the client's request that are forwarded to the app, beside Content-Type and Accept."""
    answer_headers: tuple[HeaderName, ...] = ()
    """Headers of the app's response that are forwarded to the client, beside Content-Type."""

    @model_validator(mode="after")
    def _effective(self) -> Self:
        if "path" in self.model_fields_set and not self.inputs:
            raise ValueError("path has no effect: no inputs are declared")
        return self


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


class KserveV1Protocol(DeclaredTensors):
    """KServe's v1 protocol, ``/v1/models/NAME:predict``."""

    name: Literal["kserve-v1"]
    """Selects this protocol."""
    layout: Literal["object", "instances"] = "instances"
    """JSON form of tensors. ``instances``: rows, ``{"instances": [...]}``, answered with ``predictions``. ``object``:
    ``{"NAME": [...]}`` in both directions."""
    explainer: Url | None = None
    """URL of the model's explainer for ``:explain``, which calls its predictor itself. The endpoints when absent."""

    @property
    def offers(self) -> frozenset[Serves]:
        """Clients of its own protocol need no declared tensors."""
        return self.serves


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
