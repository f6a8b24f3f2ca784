"""The payloads of TensorFlow Serving's requests, over REST and gRPC, and of KServe's v1."""

from typing import ClassVar

from adapters.requests import TensorPayload
from adapters.types import TensorWire, Verb


class PredictV1Payload(TensorPayload, kw_only=True):
    """The body of KServe's v1, or of TensorFlow Serving's REST."""

    wire: ClassVar[TensorWire] = "predict-v1"

    verb: Verb = "predict"
    by_row: bool = True
    """Whether request and response have one object for each row."""
    explainer: bool = False
    """Whether the model explains another model's responses: each response is an explanation."""


class PredictPayload(TensorPayload):
    """A `PredictRequest`, with the client's names."""

    wire: ClassVar[TensorWire] = "tfserving-grpc"
