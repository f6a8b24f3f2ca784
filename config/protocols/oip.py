"""The Open Inference Protocol, as Triton, KServe, MLServer and our own tensor runtime speak it."""

from typing import Literal

from config.protocols.base import ProtocolConfig


class OipHttpProtocol(ProtocolConfig):
    """``/v2/models/NAME/infer``."""

    serves = frozenset({"tensors"})

    name: Literal["oip-http"]
    """The Open Inference Protocol over HTTP."""
    binary: bool = True
    """Whether the endpoints know the protocol's binary extension. MLServer does not: what clients send in binary form
    is written as JSON for it."""


class OipGrpcProtocol(ProtocolConfig):
    """``inference.GRPCInferenceService``."""

    serves = frozenset({"tensors"})
    has_paths = False

    name: Literal["oip-grpc"]
    """The Open Inference Protocol over gRPC."""
