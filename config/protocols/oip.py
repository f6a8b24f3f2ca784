"""The Open Inference Protocol, as Triton, KServe, MLServer and our own tensor runtime speak it."""

from typing import Literal

from config.protocols.base import ProtocolConfig

OipServer = Literal["triton", "kserve", "mlserver", "seldon", "openvino"]


class OipHttpProtocol(ProtocolConfig):
    """``/v2/models/NAME/infer``."""

    serves = frozenset({"tensors"})

    name: Literal["oip-http"]
    """The Open Inference Protocol over HTTP."""
    server: OipServer | None = None
    """Whose servers they are, where they differ from Triton: KServe's want an id with each request and have no
    versions, MLServer's and Seldon's know no binary tensors and no prompts, Seldon's router wants ``seldon-model``."""
    binary: bool = True
    """Whether the endpoints know the protocol's binary extension. MLServer does not: what clients send in binary form
    is written as JSON for it."""


class OipGrpcProtocol(ProtocolConfig):
    """``inference.GRPCInferenceService``."""

    serves = frozenset({"tensors"})
    has_paths = False

    name: Literal["oip-grpc"]
    """The Open Inference Protocol over gRPC."""
    server: OipServer | None = None
    """Whose servers they are, where they differ from Triton."""
