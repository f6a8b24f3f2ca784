"""TensorFlow Serving."""

from typing import Literal

from config.protocols.base import ProtocolConfig


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
