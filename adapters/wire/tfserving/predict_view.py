"""A `PredictRequest` of TensorFlow Serving's gRPC, decoded as far as a gateway needs.

The message is forwarded unchanged to a server of the same wire, and is decoded to tensors for any other server.
"""

import dataclasses
from functools import lru_cache
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from adapters.errors import CallerError
from adapters.requests import Codec, Fields, InferRequest, ModelRequest, R
from adapters.tensors import Data, Inference
from adapters.wire.oip import request_view as oip_view
from adapters.wire.oip import requests as oip
from adapters.wire.oip.bodies import HttpPayload
from adapters.wire.oip.request_view import rows_of, with_model, without_model
from adapters.wire.protos.tfserving import serving
from adapters.wire.tfserving import predict as tfserving_predict
from adapters.wire.tfserving.predict_v1 import PredictPayload

_encode = msgspec.json.Encoder().encode
_parameters = msgspec.json.Decoder(dict[str, str | int | float | bool]).decode


class PredictSummary(NamedTuple):
    """The fields of a message that routing reads."""

    model: str
    version: str
    signature: str
    rows: int


def summarize(message: bytes) -> PredictSummary:
    """Decode the fields that routing reads. Raises `CallerError`."""
    request = tfserving_predict.decode(serving.PredictRequest, message)
    spec = request.model_spec
    first = min(request.inputs, default="")
    shape = tuple([dim.size for dim in request.inputs[first].tensor_shape.dim]) if first else ()
    return PredictSummary(spec.name, tfserving_predict.version_of(spec), spec.signature_name, rows_of(shape))


def with_version(message: bytes, version: str) -> bytes:
    """Return the message with another version."""
    request = tfserving_predict.decode(serving.PredictRequest, message)
    spec = request.model_spec
    spec.ClearField("version_choice")
    tfserving_predict.put_spec(spec, spec.name, version, spec.signature_name)
    return bytes(request.SerializeToString())


def request_of(
    look: PredictSummary, message: bytes, *, model: str, version: str, timeout: float | None = None
) -> InferRequest:
    """Return the request of a message. `version` is the version to request from the server."""
    return InferRequest(
        model=model,
        version=version,
        payload=PredictPayload(body=message),
        rows=look.rows,
        size=len(message),
        timeout=timeout,
        codec=TFSERVING,
    )


@lru_cache(4096)
def renamed(kind: str, model: str) -> bytes:
    """Return the name field to append to a message: the last value of a repeated field replaces the client's."""
    message = getattr(serving, kind)()
    message.model_spec.name = model
    return bytes(message.SerializeToString())


class _TfServing(Codec):
    """Codec of this wire. Every request is an `InferRequest` of `request_of`."""

    def fields(self, request: ModelRequest) -> Fields:
        assert isinstance(request, InferRequest)
        return without_model(_encoded(request.inference))

    def rewrite(self, request: R, fields: Fields) -> R:
        """Convert the request to the Open Inference Protocol: this wire has no parameters except the signature."""
        assert isinstance(request, InferRequest)
        inference = request.inference
        model, written = with_model(request, fields, _encoded(inference))
        try:
            parameters = _parameters(_encode(written))
        except msgspec.ValidationError:
            raise CallerError("A parameter that this route writes has no form there: only plain values do.") from None
        inference = dataclasses.replace(inference, parameters=parameters)
        body, length = oip.encode_request(inference)
        payload = HttpPayload(body=body, header_length=length, decoded=inference)
        return replace(request, model=model, payload=payload, codec=oip_view.HTTP)

    def inference(self, request: InferRequest) -> Inference:
        inference = tfserving_predict.decode_request(request.payload.body)
        inference.model_name, inference.model_version = request.model, request.version
        return inference

    def canonical(self, request: ModelRequest) -> tuple[Data, ...]:
        """Return the key of a request: its body unchanged. Equivalent requests may have different bodies."""
        assert isinstance(request, InferRequest)
        return _encode((request.wire, request.model, request.version)), request.payload.body

    def is_deterministic(self, request: ModelRequest) -> bool:
        return True


def _encoded(inference: Inference) -> Fields:
    return {name: msgspec.Raw(_encode(value)) for name, value in inference.parameters.items()}


TFSERVING = _TfServing()
