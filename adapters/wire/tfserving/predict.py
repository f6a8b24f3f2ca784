"""TensorFlow Serving's `Predict` over gRPC, both ways, and how its messages name a model."""

from typing import Any, TypeVar

from google.protobuf.message import DecodeError

from adapters.errors import CallerError
from adapters.tensors import NO_PARAMETERS, Inference, Inferred, RequestedOutput
from adapters.wire import decoding
from adapters.wire.protos.tfserving import serving
from adapters.wire.tfserving import tensors as tfserving_tensors
from adapters.wire.tfserving.predict_v1 import SERVING, SIGNATURE

M = TypeVar("M")
_MOST = 2**63 - 1


def put_spec(spec: Any, model: str, version: str, signature: str = "") -> None:
    """Name a model; a version is a number, and what is none is a label."""
    spec.name = model
    if version.isdigit() and int(version) <= _MOST:
        spec.version.value = int(version)
    elif version:
        spec.version_label = version
    spec.signature_name = signature


def version_of(spec: Any) -> str:
    """Or the label; empty for the server's choice, which OpenVINO's client calls version 0."""
    if spec.HasField("version") and spec.version.value:
        return str(spec.version.value)
    return str(spec.version_label)


def decode(kind: Any, message: bytes) -> Any:
    """A client's message. Raises `CallerError`."""
    try:
        return kind.FromString(message)
    except DecodeError:
        raise CallerError(f"The message is no {kind.DESCRIPTOR.name}.", code="invalid_message") from None


def decode_answer(kind: Any, message: bytes) -> Any:
    """A server's message. Raises `BackendError`."""
    with decoding.Checked(DecodeError):
        return kind.FromString(message)


def decode_request(message: bytes) -> Inference:
    """A client's `PredictRequest`, with the signature as a parameter. Raises `CallerError`."""
    asked = decode(serving.PredictRequest, message)
    inputs = [tfserving_tensors.decode(name, asked.inputs[name]) for name in sorted(asked.inputs)]
    outputs = [RequestedOutput(name) for name in dict.fromkeys(asked.output_filter)]
    signature = asked.model_spec.signature_name
    parameters = {SIGNATURE: signature} if signature not in ("", SERVING) else NO_PARAMETERS
    return Inference(asked.model_spec.name, version_of(asked.model_spec), "", parameters, inputs, outputs)


def encode_request(inference: Inference, model: str) -> bytes:
    """For the server that calls the model so. Raises `CallerError`."""
    asked = serving.PredictRequest(output_filter=[output.name for output in inference.outputs])
    put_spec(asked.model_spec, model, inference.model_version, str(inference.parameters.get(SIGNATURE, "")))
    for tensor in inference.inputs:
        tfserving_tensors.encode(asked.inputs[tensor.name], tensor)
    return bytes(asked.SerializeToString())


def decode_response(message: bytes, model: str) -> Inferred:
    """What a server answered of the model that its client calls so. Raises `BackendError`."""
    told = decode_answer(serving.PredictResponse, message)
    with decoding.Checked(CallerError):
        outputs = [tfserving_tensors.decode(name, told.outputs[name]) for name in sorted(told.outputs)]
    return Inferred(model, version_of(told.model_spec), outputs=outputs)


def encode_response(inferred: Inferred, model: str, signature: str) -> bytes:
    """For a client that calls the model so. Raises `CallerError`."""
    told = serving.PredictResponse()
    put_spec(told.model_spec, model, inferred.model_version, signature or SERVING)
    for tensor in inferred.outputs:
        tfserving_tensors.encode(told.outputs[tensor.name], tensor, by_value=True)
    return bytes(told.SerializeToString())
