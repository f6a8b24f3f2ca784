"""Codec of TensorFlow Serving's `Predict` over gRPC, and of the model's name in its messages."""

from typing import Any

from google.protobuf.message import DecodeError

from adapters.errors import CallerError
from adapters.tensors import NO_PARAMETERS, Inference, Inferred, RequestedOutput
from adapters.wire import decoding
from adapters.wire.decoding import whole_number
from adapters.wire.protos.tfserving import serving
from adapters.wire.tfserving import tensors as tfserving_tensors
from adapters.wire.tfserving.predict_v1 import SERVING, SIGNATURE


def put_spec(spec: Any, model: str, version: str, signature: str = "") -> None:
    """Set the name of a model. A version that is not a number is a label."""
    spec.name = model
    if (number := whole_number(version)) is not None:
        spec.version.value = number
    elif version:
        spec.version_label = version
    spec.signature_name = signature


def version_of(spec: Any) -> str:
    """Return the version or the label; empty for the server's choice, which is version 0 in OpenVINO's client."""
    if spec.HasField("version") and spec.version.value:
        return str(spec.version.value)
    return str(spec.version_label)


def decode(kind: Any, message: bytes) -> Any:
    """Decode a client's message. Raises `CallerError`."""
    try:
        return kind.FromString(message)
    except DecodeError:
        raise CallerError(f"The message is not a {kind.DESCRIPTOR.name}.", code="invalid_message") from None


def decode_answer(kind: Any, message: bytes) -> Any:
    """Decode a server's message. Raises `BackendError`."""
    with decoding.Checked(DecodeError):
        return kind.FromString(message)


def decode_request(message: bytes) -> Inference:
    """Decode a client's `PredictRequest`; the signature becomes a parameter. Raises `CallerError`."""
    request = decode(serving.PredictRequest, message)
    inputs = [tfserving_tensors.decode(name, request.inputs[name]) for name in sorted(request.inputs)]
    outputs = [RequestedOutput(name) for name in dict.fromkeys(request.output_filter)]
    signature = request.model_spec.signature_name
    parameters = {SIGNATURE: signature} if signature not in ("", SERVING) else NO_PARAMETERS
    return Inference(request.model_spec.name, version_of(request.model_spec), "", parameters, inputs, outputs)


def encode_request(inference: Inference, model: str) -> bytes:
    """Encode a `PredictRequest`. `model` is the server's name of the model. Raises `CallerError`."""
    request = serving.PredictRequest(output_filter=[output.name for output in inference.outputs])
    put_spec(request.model_spec, model, inference.model_version, str(inference.parameters.get(SIGNATURE, "")))
    for tensor in inference.inputs:
        tfserving_tensors.encode(request.inputs[tensor.name], tensor)
    return bytes(request.SerializeToString())


def decode_response(message: bytes, model: str) -> Inferred:
    """Decode a server's `PredictResponse`. `model` is the client's name of the model. Raises `BackendError`."""
    decoded = decode_answer(serving.PredictResponse, message)
    with decoding.Checked(CallerError):
        outputs = [tfserving_tensors.decode(name, decoded.outputs[name]) for name in sorted(decoded.outputs)]
    return Inferred(model, version_of(decoded.model_spec), outputs=outputs)


def encode_response(inferred: Inferred, model: str, signature: str) -> bytes:
    """Encode a `PredictResponse`. `model` is the client's name of the model. Raises `CallerError`."""
    encoded = serving.PredictResponse()
    put_spec(encoded.model_spec, model, inferred.model_version, signature or SERVING)
    for tensor in inferred.outputs:
        tfserving_tensors.encode(encoded.outputs[tensor.name], tensor, by_value=True)
    return bytes(encoded.SerializeToString())
