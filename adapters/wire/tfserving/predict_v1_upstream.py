"""Encodes requests to servers of KServe's v1 and of TensorFlow Serving's REST, and decodes their responses.

A response for a client of the same wire is only checked (`check_response`).
"""

import json
from collections.abc import Sequence
from typing import Any, NoReturn

import msgspec
from msgspec import Raw

from adapters.errors import CallerError
from adapters.tensors import Inference, Inferred, Tensor
from adapters.wire import decoding, failure_text
from adapters.wire.oip import json_data as oip_data
from adapters.wire.oip.bodies import TensorMetadata
from adapters.wire.oip.responses import error_of
from adapters.wire.tfserving import predict_v1, predict_v1_responses

_ANSWERED = frozenset({"predictions", "outputs", "explanations", "result", "results"})
_DATATYPES: dict[type, str] = {bool: "BOOL", int: "INT64", float: "FP64", str: "BYTES", dict: "BYTES"}
_encode = msgspec.json.Encoder().encode
_fields = msgspec.json.Decoder(dict[str, Raw]).decode
_decode = msgspec.json.Decoder().decode


def encode_request(inference: Inference, *, by_row: bool = False) -> bytes:
    """Encode a body of whole `inputs`, or of `instances` (rows) for servers that support only rows.

    Raises `CallerError` for values that JSON cannot express, and for tensors without rows. NaN is written as in Python.
    """
    values = {tensor.name: predict_v1_responses.nested(tensor) for tensor in inference.inputs}
    encoded: dict[str, Any] = {"instances": _rows(inference.inputs, values)} if by_row else {"inputs": values}
    if signature := inference.parameters.get(predict_v1.SIGNATURE):
        encoded = {predict_v1.SIGNATURE: signature, **encoded}
    body = _encode(encoded)
    return json.dumps(encoded).encode() if b"null" in body else body


def _rows(inputs: Sequence[Tensor], values: dict[str, Any]) -> list[Any]:
    lengths = {tensor.shape[:1] for tensor in inputs}
    if len(lengths) != 1 or () in lengths:
        raise CallerError("The model's servers take rows: all inputs must have the same first dimension.")
    if len(inputs) == 1:
        return list(values[inputs[0].name])
    return [dict(zip(values, row, strict=True)) for row in zip(*values.values(), strict=True)]


def check_response(body: bytes) -> bytes:
    """Return a response unchanged, or with null for NaN, which is not JSON. Raises `BackendError`."""
    try:
        fields = _fields(body)
        body.decode()
    except decoding.MALFORMED_JSON:
        lenient = _lenient(body)
        if not isinstance(lenient, dict):
            _unreadable()
        with decoding.Checked(ValueError, OverflowError):
            body, fields = _encode(lenient), {name: Raw() for name in lenient}
    if "error" in fields and not _ANSWERED & fields.keys():
        raise failure_text.model_failure(error_of(body))
    return body


def decode_answer(body: bytes, outputs: Sequence[TensorMetadata], model: str, version: str) -> Inferred:
    """Decode a response by the model's `outputs`; without metadata, datatypes are inferred from the values.

    Raises `BackendError` if the response is malformed.
    """
    try:
        decoded = _decode(body)
    except decoding.MALFORMED_JSON:
        decoded = _lenient(body)
    if not isinstance(decoded, dict):
        _unreadable()
    key = next((key for key in ("outputs", "predictions", "explanations") if key in decoded), None)
    if key is None:
        if "error" in decoded:
            raise failure_text.model_failure(error_of(body))
        _unreadable()
    try:
        values = _named(decoded[key], outputs, by_row=key != "outputs")
        by_name = {tensor.name: tensor for tensor in outputs}
        tensors = [tensor_of(name, value, by_name.get(name)) for name, value in values.items()]
    except (CallerError, AttributeError, KeyError, TypeError):
        _unreadable()
    return Inferred(model, version, outputs=tensors)


def _named(value: Any, outputs: Sequence[TensorMetadata], *, by_row: bool) -> dict[str, Any]:
    """Return the outputs by name: a single output has no name in the body."""
    first = value[0] if by_row and isinstance(value, list) and value else value
    if not isinstance(first, dict) or "b64" in first:
        return {outputs[0].name if outputs else "output": value}
    if not by_row:
        return dict(value)
    return {name: [row[name] for row in value] for name in first}


def tensor_of(name: str, value: Any, declared: TensorMetadata | None) -> Tensor:
    """Decode a JSON value by the output's metadata; null is NaN. Raises `CallerError`."""
    dims, flat = predict_v1.flattened(value, name)
    if declared is None:
        kinds = set(map(type, flat)) - {type(None)}
        datatype = "FP64" if kinds == {int, float} else _DATATYPES.get(kinds.pop() if len(kinds) == 1 else float, "")
        declared = TensorMetadata(name, datatype, dims)
    elif 0 in dims and len(dims) < len(declared.shape):
        dims = (*dims, *(max(dim, 0) for dim in declared.shape[len(dims) :]))  # an empty list hides further dimensions
    if declared.datatype in oip_data.FLOATS:
        flat = [float("nan") if one is None else one for one in flat]
    return Tensor(name, declared.datatype, dims, predict_v1.packed(flat, declared))


def _lenient(body: bytes) -> Any:
    """Decode JSON with NaN and the infinities, which are not JSON but which servers write. Raises `BackendError`."""
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        _unreadable()


def _unreadable() -> NoReturn:
    raise decoding.malformed() from None


# The part of KServe's v1 that differs from TensorFlow Serving's REST.

_object = msgspec.json.Decoder(dict[str, Any]).decode


class _Ready(msgspec.Struct):
    ready: bool | str = True


_ready = msgspec.json.Decoder(_Ready).decode


def is_kserve_ready(body: bytes) -> bool:
    """Whether the body of a model's path reports it as ready. Older servers send a text; any other body is ready."""
    try:
        ready = _ready(body).ready
    except decoding.MALFORMED_JSON:
        return True
    return ready if isinstance(ready, bool) else ready.lower() == "true"


def is_kserve_request(body: bytes) -> bool:
    """Whether a body may contain a model's input."""
    try:
        return bool(_object(body))
    except decoding.MALFORMED_JSON:
        return True  # the body may contain NaN, which is not JSON
