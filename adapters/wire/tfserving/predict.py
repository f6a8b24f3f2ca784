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
    request = decode(serving.PredictRequest, message)
    inputs = [tfserving_tensors.decode(name, request.inputs[name]) for name in sorted(request.inputs)]
    outputs = [RequestedOutput(name) for name in dict.fromkeys(request.output_filter)]
    signature = request.model_spec.signature_name
    parameters = {SIGNATURE: signature} if signature not in ("", SERVING) else NO_PARAMETERS
    return Inference(request.model_spec.name, version_of(request.model_spec), "", parameters, inputs, outputs)


def encode_request(inference: Inference, model: str) -> bytes:
    """For the server that calls the model so. Raises `CallerError`."""
    request = serving.PredictRequest(output_filter=[output.name for output in inference.outputs])
    put_spec(request.model_spec, model, inference.model_version, str(inference.parameters.get(SIGNATURE, "")))
    for tensor in inference.inputs:
        tfserving_tensors.encode(request.inputs[tensor.name], tensor)
    return bytes(request.SerializeToString())


def decode_response(message: bytes, model: str) -> Inferred:
    """What a server answered of the model that its client calls so. Raises `BackendError`."""
    decoded = decode_answer(serving.PredictResponse, message)
    with decoding.Checked(CallerError):
        outputs = [tfserving_tensors.decode(name, decoded.outputs[name]) for name in sorted(decoded.outputs)]
    return Inferred(model, version_of(decoded.model_spec), outputs=outputs)


def encode_response(inferred: Inferred, model: str, signature: str) -> bytes:
    """For a client that calls the model so. Raises `CallerError`."""
    encoded = serving.PredictResponse()
    put_spec(encoded.model_spec, model, inferred.model_version, signature or SERVING)
    for tensor in inferred.outputs:
        tfserving_tensors.encode(encoded.outputs[tensor.name], tensor, by_value=True)
    return bytes(encoded.SerializeToString())
