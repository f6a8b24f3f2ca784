"""Transcodes TensorFlow Serving's `Classify` and `Regress` between REST's JSON and gRPC's messages.

An example's features are lists of one kind of value. A list of one value is encoded as the value itself, which models
of other servers accept too.
"""

import base64
import binascii
from typing import Any, NamedTuple

import msgspec

from adapters.errors import BackendError, CallerError
from adapters.wire import decoding
from adapters.wire.protos.tfserving import PREDICTION, serving
from adapters.wire.tfserving import predict as tfserving_predict
from adapters.wire.tfserving import predict_v1
from adapters.wire.tfserving.predict_v1 import SERVING, SIGNATURE

_encode = msgspec.json.Encoder().encode
_results = msgspec.json.Decoder(dict[str, Any]).decode
_CALLED = ("results", "result")


def body_of(message: Any, signature: str) -> bytes:
    """Transcode a client's `Input` to the body of REST. Raises `CallerError` if it has no examples."""
    kind = message.WhichOneof("kind")
    if kind is None or not getattr(message, kind).examples:
        raise CallerError("The request has no examples.", param="input")
    encoded: dict[str, Any] = {} if signature in ("", SERVING) else {SIGNATURE: signature}
    if kind == "example_list_with_context":
        encoded["context"] = _features(message.example_list_with_context.context)
    encoded["examples"] = [_features(example) for example in getattr(message, kind).examples]
    return _encode(encoded)


def _features(example: Any) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    for name, feature in sorted(example.features.feature.items()):
        kind = feature.WhichOneof("kind")
        if kind is None:
            continue
        values = list(getattr(feature, kind).value)
        if kind == "bytes_list":
            values = [{"b64": base64.b64encode(value).decode()} for value in values]
        fields[name] = values[0] if len(values) == 1 else values
    return fields


def fill_input(message: Any, body: bytes) -> str:
    """Fill an `Input` from the body of REST. Returns the signature's name. Raises `CallerError`."""
    fields = predict_v1.object_of(body)
    rows, context = predict_v1.examples_of(fields)
    if context is not None:
        _put(message.example_list_with_context.context, context)
    examples = message.example_list if context is None else message.example_list_with_context
    for row in rows:
        _put(examples.examples.add(), row)
    return str(fields.get(SIGNATURE) or "")


def encode_request(name: str, body: bytes, model: str, version: str) -> bytes:
    """Encode the request of a method: `Classify` or `Regress`. Raises `CallerError`."""
    message = PREDICTION[name].request()
    signature = fill_input(message.input, body)
    tfserving_predict.put_spec(message.model_spec, model, version, signature)
    return bytes(message.SerializeToString())


def decode_response(name: str, message: bytes) -> bytes:
    """Transcode a server's response to the body of REST. Raises `BackendError`."""
    result = tfserving_predict.decode_answer(PREDICTION[name].response, message).result
    return encode_classes(result) if name == "Classify" else encode_values(result)


class Examples(NamedTuple):
    """A client's model and examples."""

    spec: bytes
    """The encoded `ModelSpec`."""
    body: bytes
    """The examples as the body of REST."""


def decode_request(name: str, message: bytes) -> Examples:
    """Decode a client's request. Raises `CallerError`."""
    request = tfserving_predict.decode(PREDICTION[name].request, message)
    spec = request.model_spec
    return Examples(bytes(spec.SerializeToString()), body_of(request.input, spec.signature_name))


def encode_response(name: str, spec: bytes, body: bytes) -> bytes:
    """Transcode the body of a REST response to the response message. Raises `BackendError`."""
    result = decode_classes(body) if name == "Classify" else decode_values(body)
    message = PREDICTION[name].response(result=result)
    message.model_spec.MergeFromString(spec)
    return bytes(message.SerializeToString())


def _put(example: Any, features: dict[str, Any]) -> None:
    for name, value in features.items():
        values = value if isinstance(value, list) else [value]
        feature = example.features.feature[name]
        try:
            if all(isinstance(one, int) for one in values):
                feature.int64_list.value.extend(map(int, values))
            elif all(isinstance(one, int | float) for one in values):
                feature.float_list.value.extend(map(float, values))
            else:
                feature.bytes_list.value.extend([_bytes(one) for one in values])
        except (ValueError, TypeError, OverflowError, binascii.Error):
            raise CallerError(f"The feature `{name[:64]}` has a value that no feature may have.", param=name) from None


def _bytes(value: Any) -> bytes:
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, dict) and value.keys() == {"b64"}:
        return base64.b64decode(value["b64"], validate=True)
    raise ValueError


# ── responses ─────────────────────────────────────────────────────────────────────────────────────────


def encode_classes(message: Any) -> bytes:
    """Transcode a server's `ClassificationResult` to the body of REST."""
    return _encode({"results": [[[one.label, one.score] for one in each.classes] for each in message.classifications]})


def encode_values(message: Any) -> bytes:
    """Transcode a server's `RegressionResult` to the body of REST."""
    return _encode({"results": [each.value for each in message.regressions]})


def decode_classes(body: bytes) -> Any:
    """Decode the body of a REST response to a `ClassificationResult`. Raises `BackendError`."""
    result = serving.ClassificationResult()
    try:
        for row in _rows(body):
            each = result.classifications.add()
            for label, score in row:
                each.classes.add(label=label, score=_number(score))
    except (TypeError, ValueError):
        raise _unreadable() from None
    return result


def decode_values(body: bytes) -> Any:
    """Decode the body of a REST response to a `RegressionResult`. Raises `BackendError`."""
    result = serving.RegressionResult()
    try:
        for value in _rows(body):
            result.regressions.add(value=_number(value))
    except (TypeError, ValueError):
        raise _unreadable() from None
    return result


def _rows(body: bytes) -> Any:
    try:
        fields = _results(body)
    except decoding.MALFORMED_JSON:
        raise _unreadable() from None
    key = next((key for key in _CALLED if key in fields), None)
    if key is None:
        raise _unreadable()
    return fields[key]


def _number(value: float | None) -> float:
    """Return a value, NaN for null: JSON cannot express NaN."""
    return float("nan") if value is None else value


def _unreadable() -> BackendError:
    return decoding.malformed()
