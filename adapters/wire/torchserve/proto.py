"""Codec of TorchServe's gRPC messages by their tags: the messages are few and small.

`org.pytorch.serve.grpc.inference`: PredictionsRequest {1: model_name, 2: model_version, 3: map<string, bytes> input},
PredictionResponse {1: prediction}, TorchServeHealthResponse {1: health}.
"""

from typing import NamedTuple

from adapters.errors import CallerError
from adapters.wire import decoding, proto_fields

_SERVICE = "/org.pytorch.serve.grpc.inference.InferenceAPIsService/"
PING = f"{_SERVICE}Ping".encode()
PREDICTIONS = f"{_SERVICE}Predictions".encode()
STREAM_PREDICTIONS = f"{_SERVICE}StreamPredictions".encode()
_FIRST, _SECOND, _THIRD = (proto_fields.tag(number) for number in (1, 2, 3))


def encode_request(model: str, version: str, name: str, body: bytes) -> bytes:
    """Encode a PredictionsRequest with one input."""
    entry = _field(_FIRST, name.encode()) + _field(_SECOND, body)
    version_field = _field(_SECOND, version.encode()) if version else b""
    return _field(_FIRST, model.encode()) + version_field + _field(_THIRD, entry)


class PredictionsRequest(NamedTuple):
    """A client's PredictionsRequest, decoded."""

    model: str
    version: str
    body: bytes


def decode_request(message: bytes) -> PredictionsRequest:
    """Decode a PredictionsRequest with one input of any name. Raises `CallerError`."""
    try:
        rest, model, inputs = proto_fields.split(message, _FIRST, _THIRD)
        _, version, _ = proto_fields.split(rest, _SECOND, 0)
        if len(inputs) != 1:
            raise CallerError("Send one `input`: servers behind a gateway may accept only a body.", param="input")
        _, _, bodies = proto_fields.split(bytes(inputs[0]), _FIRST, _SECOND)
    except proto_fields.MalformedMessage:
        raise CallerError("The message is not a PredictionsRequest.", code="invalid_message") from None
    return PredictionsRequest(model, version, bytes(bodies[-1]) if bodies else b"")


def encode_response(body: bytes) -> bytes:
    """Encode a PredictionResponse."""
    return _field(_FIRST, body)


def decode_response(message: bytes) -> bytes:
    """Decode the first field of a response: a handler's body, or the server's health. Raises `BackendError`."""
    with decoding.Checked(proto_fields.MalformedMessage):
        rest, _, values = proto_fields.split(message, 0, _FIRST)
        if rest:
            raise proto_fields.MalformedMessage("there is no other field")
    return bytes(values[-1]) if values else b""


def _field(tag: int, value: bytes) -> bytes:
    return proto_fields.head(tag, len(value)) + value
