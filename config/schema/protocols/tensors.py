"""Servers of tensors: the Open Inference Protocol, TensorFlow Serving and TorchServe; a declared tensor."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from config.schema.protocols.base import ProtocolConfig, Serves
from config.schema.section import Section
from config.schema.text import Secret

Dim = Annotated[int, Field(ge=-1)]


class TensorConfig(Section):
    """An input or an output of a model."""

    name: str = Field(min_length=1, max_length=256)
    """Name at the model."""
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
    """Datatype of the Open Inference Protocol; text is BYTES."""
    shape: tuple[Dim, ...] = Field(max_length=32)
    """Dimensions, the batch dimension first if there is one; -1 is any length."""


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


OipServer = Literal["triton", "kserve", "mlserver", "seldon", "openvino"]


class OipHttpProtocol(ProtocolConfig):
    """The Open Inference Protocol over HTTP, ``/v2/models/NAME/infer``."""

    serves = frozenset({"tensors"})

    name: Literal["oip-http"]
    """Selects this protocol."""
    server: OipServer | None = None
    """Kind of server, if it differs from Triton. KServe requires an id with each request and has no versions. MLServer
    and Seldon have no binary tensors and no prompts. Seldon's router requires ``seldon-model``."""
    binary: bool = True
    """Whether the endpoints support the protocol's binary extension. MLServer does not: binary tensors of clients are
    converted to JSON."""


class OipGrpcProtocol(ProtocolConfig):
    """The Open Inference Protocol over gRPC, ``inference.GRPCInferenceService``."""

    serves = frozenset({"tensors"})
    has_paths = False

    name: Literal["oip-grpc"]
    """Selects this protocol."""
    server: OipServer | None = None
    """Kind of server, if it differs from Triton."""


class TfServingProtocol(ProtocolConfig):
    """TensorFlow Serving's REST API, ``/v1/models/NAME:predict``."""

    serves = frozenset({"tensors"})

    name: Literal["tfserving"]
    """Selects this protocol."""


class TfServingGrpcProtocol(ProtocolConfig):
    """TensorFlow Serving over gRPC, ``tensorflow.serving.PredictionService``."""

    serves = frozenset({"tensors"})
    has_paths = False

    name: Literal["tfserving-grpc"]
    """Selects this protocol."""


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
