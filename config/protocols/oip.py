"""The Open Inference Protocol of Triton, KServe, MLServer and the bundled tensor runtime."""

from typing import Literal

from config.protocols.base import ProtocolConfig

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
