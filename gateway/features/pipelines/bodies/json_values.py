"""Fields of KServe's v1, for models without declared tensors: bodies are decoded to values, and encoded from values."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import msgspec

from adapters.errors import CallerError, StepFailed
from adapters.requests import InferRequest
from adapters.tensors import Tensor
from adapters.wire import decoding
from adapters.wire.tfserving import predict_v1_upstream, predict_v1_view
from adapters.wire.tfserving.predict_v1 import flattened, object_of
from adapters.wire.tfserving.predict_v1_responses import nested
from gateway.features.pipelines.values import Value, Values

_encode = msgspec.json.Encoder().encode
_NUMBERS = frozenset((int, float))
_HOMOGENEOUS = (frozenset((bool,)), frozenset((str,)))


def decode_request(body: bytes) -> Values:
    """The fields of a client's body, with those of its `parameters`. Raises `CallerError`."""
    fields = object_of(body)
    parameters = fields.get("parameters")
    named = parameters if isinstance(parameters, dict) else {}
    return {**named, **{name: _value(name, value) for name, value in fields.items()}}


def decode_fields(body: bytes) -> Values:
    """The fields of a server's answer. Raises `BackendError`."""
    try:
        fields = object_of(body)
    except CallerError:
        raise decoding.malformed() from None
    return {name: _value(name, value) for name, value in fields.items()}


def _value(name: str, value: Any) -> Value:
    """A rectangular list of numbers, texts or booleans as a tensor, and any other value as it is."""
    # Texts of a tensor whose name ends with `_bytes` would be written as base64.
    if not isinstance(value, list) or not value or name.endswith("_bytes"):
        return value
    try:
        _, flat = flattened(value, name)
        kinds = frozenset(map(type, flat))
        if not kinds or (not kinds <= _NUMBERS and kinds not in _HOMOGENEOUS):
            return value
        return predict_v1_upstream.tensor_of(name, value, None)
    except CallerError:
        return value


def request_of(body: bytes, model: str) -> InferRequest:
    """The request of a body of this gateway."""
    return predict_v1_view.request_of(body, model=model, version="")


def encode_fields(values: Values) -> bytes:
    """A body with these fields. NaN is written as in Python."""
    fields = _plain(values)
    body = _encode(fields)
    return json.dumps(fields).encode() if b"null" in body else body


def encode_predictions(values: Values, *, by_row: bool, has_names: bool = False) -> bytes:
    """An answer of these outputs: `predictions`, one object for each row of named outputs, or `outputs`.

    Raises `StepFailed` for several outputs that differ in their rows.
    """
    fields = _plain(values)
    if len(fields) == 1 and not has_names:
        (only,) = fields.values()
        return _encode({"predictions" if by_row else "outputs": only})
    if not by_row:
        return _encode({"outputs": fields})
    columns = list(fields.values())
    if not all(isinstance(column, list) and len(column) == len(columns[0]) for column in columns):
        shown = ", ".join(f"`{name}`" for name in fields)
        raise StepFailed(f"The outputs {shown} of the pipeline have no row for each instance.")
    return _encode({"predictions": [dict(zip(fields, row, strict=True)) for row in zip(*columns, strict=True)]})


def _plain(values: Mapping[str, Value]) -> dict[str, Any]:
    return {name: nested(value) if isinstance(value, Tensor) else value for name, value in values.items()}
