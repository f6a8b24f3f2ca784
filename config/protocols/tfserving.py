"""TensorFlow Serving."""

from typing import Literal

from config.protocols.base import ProtocolConfig


class TfServingProtocol(ProtocolConfig):
    """``/v1/models/NAME:predict``."""

    serves = frozenset({"tensors"})

    name: Literal["tfserving"]
    """TensorFlow Serving's REST."""


class TfServingGrpcProtocol(ProtocolConfig):
    """``tensorflow.serving.PredictionService``."""

    serves = frozenset({"tensors"})
    has_paths = False

    name: Literal["tfserving-grpc"]
    """TensorFlow Serving over gRPC."""
