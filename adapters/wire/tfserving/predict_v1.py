"""Decodes requests of KServe's v1 and of TensorFlow Serving's REST: plain JSON values, by the model's metadata.

A request has `instances`, which are rows (each a value, or an object of named values), or `inputs`, which are whole
tensors. Its response has the same orientation (`predict_v1_responses`). NaN and the infinities are accepted: they are
not JSON, but clients of these protocols write them.
"""

import base64
import binascii
import json
from collections.abc import Mapping
from itertools import chain
from struct import error, pack
from typing import Any, ClassVar, NamedTuple

import msgspec

from adapters.errors import CallerError
from adapters.requests import TensorPayload
from adapters.tensors import DATATYPES, Parameter, Tensor, join_bytes
from adapters.types import TensorWire, Verb
from adapters.wire.oip import json_data as oip_data
from adapters.wire.oip.bodies import ModelMetadata, TensorMetadata

SERVING = "serving_default"
SIGNATURE = "signature_name"
"""The parameter and the JSON key that select a TensorFlow signature."""
_NUMBERS: Mapping[str, frozenset[type]] = {"BOOL": frozenset({bool})} | {
    datatype: frozenset({int, float} if datatype in oip_data.FLOATS else {int})
    for datatype in DATATYPES - {"BOOL", "BYTES", "BF16"}
}
_decode = msgspec.json.Decoder().decode


class PredictV1Request(NamedTuple):
    """A request's tensors, and the form of its response."""

    inputs: list[Tensor]
    by_row: bool
    parameters: dict[str, Parameter]


def decode_predict(body: bytes, model: ModelMetadata) -> PredictV1Request:
    """Decode a request to tensors. Raises `CallerError`, which names the invalid part and the remedy."""
    return predict_of(object_of(body), model)


def predict_of(fields: dict[str, Any], model: ModelMetadata) -> PredictV1Request:
    """Decode the fields of a request to tensors. Raises `CallerError`."""
    by_row = "instances" in fields
    if by_row == ("inputs" in fields):
        raise CallerError("Send either `instances`, which are rows, or `inputs`, which are whole tensors.")
    values = _columns(fields["instances"], model) if by_row else _named(fields["inputs"], model)
    return PredictV1Request(
        [_tensor(values[name], declared, by_row) for name, declared in _declared(values, model)], by_row, _more(fields)
    )


def decode_examples(body: bytes, model: ModelMetadata) -> PredictV1Request:
    """Decode `examples` of named features, and their shared features in `context`. Raises `CallerError`."""
    fields = object_of(body)
    examples, context = examples_of(fields)
    values = _columns([{**(context or {}), **example} for example in examples], model)
    return PredictV1Request(
        [_tensor(values[name], declared, True) for name, declared in _declared(values, model)], True, _more(fields)
    )


def examples_of(fields: dict[str, Any]) -> tuple[list[dict[str, Any]], dict[str, Any] | None]:
    """Return the examples and their shared features. Raises `CallerError`."""
    examples, context = fields.get("examples"), fields.get("context")
    if not isinstance(examples, list) or not examples or not isinstance(context or {}, dict):
        raise CallerError("Send `examples`: a list of objects, each with its features by name.", param="examples")
    if not all(isinstance(example, dict) for example in examples):
        raise CallerError("Each of the `examples` must be an object.", param="examples")
    return examples, context


def object_of(body: bytes) -> dict[str, Any]:
    """Decode a body's fields. Raises `CallerError`."""
    try:
        decoded = _parse(body)
    except RecursionError:
        raise CallerError("The JSON body is nested too deeply.", code="invalid_json") from None
    except (ValueError, msgspec.DecodeError) as why:
        raise CallerError(f"The body is not valid JSON: {why}.", code="invalid_json") from None
    if not isinstance(decoded, dict):
        raise CallerError("The body must be a JSON object.", code="invalid_json")
    return decoded


def _parse(body: bytes) -> Any:
    """Decode JSON. NaN requires Python's own parser, which takes three times as long."""
    try:
        return _decode(body)
    except msgspec.DecodeError:
        return json.loads(body)


def _more(fields: dict[str, Any]) -> dict[str, Parameter]:
    """Return the parameters of the model, the signature included."""
    parameters = fields.get("parameters") or {}
    if not isinstance(parameters, dict):
        raise CallerError("`parameters` must be an object.", param="parameters")
    encoded = {name: value for name, value in parameters.items() if isinstance(value, str | int | float | bool)}
    signature = fields.get(SIGNATURE)
    return encoded if signature in (None, "", SERVING) else {**encoded, SIGNATURE: str(signature)}


def _columns(rows: Any, model: ModelMetadata) -> dict[str, list[Any]]:
    """Convert rows to columns: for each input, its values of all rows."""
    if not isinstance(rows, list) or not rows:
        raise CallerError("`instances` must be a list of one row or more.", param="instances")
    if not isinstance(rows[0], dict) or "b64" in rows[0]:
        return {_only(model): rows}
    names = rows[0].keys()
    for row in rows:
        if not isinstance(row, dict) or row.keys() != names:
            raise CallerError("Every row must have the same inputs: the rows differ.", param="instances")
    return {name: [row[name] for row in rows] for name in names}


def _named(inputs: Any, model: ModelMetadata) -> dict[str, Any]:
    return inputs if isinstance(inputs, dict) and "b64" not in inputs else {_only(model): inputs}


def _only(model: ModelMetadata) -> str:
    if len(model.inputs) != 1:
        names = ", ".join(declared.name for declared in model.inputs)
        raise CallerError(f"This model has several inputs. Give each by its name: {names}.")
    return model.inputs[0].name


def _declared(values: Mapping[str, Any], model: ModelMetadata) -> list[tuple[str, TensorMetadata]]:
    by_name = {tensor.name: tensor for tensor in model.inputs}
    if unknown := [name for name in values if name not in by_name]:
        raise CallerError(
            f"The model has no input `{unknown[0][:64]}`. It has: {', '.join(by_name)}.", param=unknown[0]
        )
    return [(name, by_name[name]) for name in values]


def _tensor(value: Any, declared: TensorMetadata, by_row: bool) -> Tensor:
    dims, flat = flattened(value, declared.name)
    return Tensor(declared.name, declared.datatype, _fitted(dims, declared.shape, by_row), packed(flat, declared))


def flattened(value: Any, name: str) -> tuple[tuple[int, ...], list[Any]]:
    """Return a value's dimensions and elements. Raises `CallerError` if it is ragged or nested too deeply."""
    dims, items = list[int](), [value]
    while items and isinstance(items[0], list):
        if len(dims) == oip_data.MAX_RANK:
            raise CallerError(f"Input `{name}` is nested deeper than {oip_data.MAX_RANK} lists.", param=name)
        width = len(items[0])
        if any(not isinstance(item, list) or len(item) != width for item in items):
            raise CallerError(f"Input `{name}` is ragged: lists of one level differ in length.", param=name)
        dims.append(width)
        items = list(chain.from_iterable(items))
    if list in set(map(type, items)):
        raise CallerError(f"Input `{name}` is ragged: lists of one level differ in length.", param=name)
    return tuple(dims), items


def _fitted(dims: tuple[int, ...], shape: tuple[int, ...], by_row: bool) -> tuple[int, ...]:
    """Return the dimensions in the model's rank, if they differ from it only by a dimension of one."""
    if len(dims) == len(shape) - 1 and shape[-1] == 1:
        return (*dims, 1)
    if by_row and len(dims) == len(shape) + 1 and dims[0] == 1:
        return dims[1:]  # the model has no batch, and the request has one row
    return dims


def packed(values: list[Any], declared: TensorMetadata) -> bytes:
    """Encode elements in binary form. Raises `CallerError` for an element of another datatype."""
    name, datatype = declared.name, declared.datatype
    if datatype == "BYTES":
        return join_bytes([_bytes(value, name) for value in values])
    types = _NUMBERS.get(datatype)
    if types is None:
        raise CallerError(f"Input `{name}` is {datatype}, which has no form in JSON. Use the Open Inference Protocol.")
    if not types.issuperset(map(type, values)):
        odd = next(value for value in values if type(value) not in types)
        raise CallerError(f"Input `{name}` takes {datatype}, and has {json.dumps(odd)[:64]}.", param=name)
    try:
        return pack(f"<{len(values)}{oip_data.CODES[datatype]}", *values)
    except (error, OverflowError):
        raise CallerError(f"Input `{name}` has a number that does not fit into {datatype}.", param=name) from None


def _bytes(value: Any, name: str) -> bytes:
    try:
        if isinstance(value, str):
            return value.encode()
        if isinstance(value, dict) and value.keys() == {"b64"} and isinstance(value["b64"], str):
            return base64.b64decode(value["b64"], validate=True)
    except (UnicodeEncodeError, binascii.Error, ValueError):
        raise CallerError(f"Input `{name}` has a text or `b64` that cannot be read.", param=name) from None
    raise CallerError(f'Input `{name}` takes texts, or bytes as {{"b64": "…"}}.', param=name)


# The payloads of TensorFlow Serving's requests, over REST and gRPC, and of KServe's v1.


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
