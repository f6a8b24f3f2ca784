"""Servers of apps: HTTP with bodies of their own, and tensors if the file declares them."""

from typing import Annotated, Literal, Self

from pydantic import model_validator

from config.protocols.base import ProtocolConfig, Serves
from config.protocols.tensors import TensorConfig
from config.schema.text import Shape

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


class DeclaredTensors(ProtocolConfig):
    """Servers that support tensors if the file declares the model's inputs and outputs."""

    serves = frozenset({"app", "tensors"})

    inputs: tuple[TensorConfig, ...] = ()
    """Inputs of the model, for clients that send tensors. When absent the server is an app only."""
    outputs: tuple[TensorConfig, ...] = ()
    """Outputs of the model."""
    layout: Literal["object", "instances"] = "object"
    """JSON form of tensors. ``object``: ``{"NAME": [...]}`` in both directions. ``instances``: KServe's rows,
    ``{"instances": [...]}``, answered with ``predictions``."""

    @property
    def offers(self) -> frozenset[Serves]:
        return self.serves if self.inputs else self.serves - {"tensors"}

    @model_validator(mode="after")
    def _both(self) -> Self:
        if bool(self.inputs) != bool(self.outputs):
            raise ValueError("inputs and outputs go together: declare both or neither")
        if "layout" in self.model_fields_set and not self.inputs:
            raise ValueError("layout has no effect: no inputs are declared")
        for tensors in (self.inputs, self.outputs):
            if len({tensor.name for tensor in tensors}) != len(tensors):
                raise ValueError("two tensors have the same name")
        return self


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
