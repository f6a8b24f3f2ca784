"""BentoML's `/schema.json`: the methods of a service, with their input and output tensors.

The schema is JSON Schema with three types of its own: `tensor`, `dataframe` and `file`. Unspecified parts get the most
general value: an array without a datatype is FP64, numpy's default, of two dimensions.
"""

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import msgspec

from adapters.wire import decoding
from adapters.wire.oip.bodies import ModelMetadata, TensorMetadata

Kind = Literal["tensor", "scalar", "dataframe", "json", "file", "any"]
INPUT, OUTPUT = "input", "output"
"""Names of values without a name: a positional argument, and a response that is not an object."""
_UNTOLD = "FP64"
_ANY_SHAPE = (-1, -1)
_DEEPEST = 8

_SCALARS = {"integer": "INT64", "number": "FP64", "boolean": "BOOL", "string": "BYTES"}
_DATATYPES = {
    "bool": "BOOL", "str": "BYTES", "object": "BYTES", "bfloat16": "BF16",
    "float16": "FP16", "half": "FP16", "float32": "FP32", "float": "FP32", "float64": "FP64", "double": "FP64",
    "int8": "INT8", "int16": "INT16", "short": "INT16", "int32": "INT32", "int": "INT32", "int64": "INT64",
    "long": "INT64", "uint8": "UINT8", "uint16": "UINT16", "uint32": "UINT32", "uint64": "UINT64",
}  # fmt: skip
"""Datatypes by the names of numpy, torch and TensorFlow."""


class SchemaField(NamedTuple):
    """An argument, or a part of a response. `datatype` is empty and `shape` None if the schema has none."""

    name: str
    kind: Kind
    datatype: str = ""
    shape: tuple[int, ...] | None = None
    columns: tuple[str, ...] = ()
    required: bool = True

    def metadata(self) -> list[TensorMetadata]:
        """Return the tensors of a field: a data frame has one for each column."""
        if self.columns:
            return [TensorMetadata(f"{self.name}.{column}", self.datatype or _UNTOLD, (-1,)) for column in self.columns]
        shape = self.shape if self.shape is not None else _ANY_SHAPE
        return [TensorMetadata(self.name, self.datatype or _UNTOLD, shape)]


class Api(NamedTuple):
    """One method of a service. `is_root`: the body is the only argument itself instead of an object of arguments."""

    name: str
    route: str
    inputs: dict[str, SchemaField]
    outputs: dict[str, SchemaField]
    is_root: bool
    is_object: bool
    """Whether the response is an object of outputs."""
    is_stream: bool
    is_task: bool

    def completed(self, inputs: Sequence[TensorMetadata], outputs: Sequence[TensorMetadata]) -> "Api":
        """Return the method with declared metadata for tensors that its schema does not specify."""
        if not self.is_object and len(outputs) == 1:
            (field,) = self.outputs.values()
            gives = {outputs[0].name: _completed(field._replace(name=outputs[0].name), outputs)}
        else:
            gives = {name: _completed(field, outputs) for name, field in self.outputs.items()}
        takes = {name: _completed(field, inputs) for name, field in self.inputs.items()}
        return self._replace(inputs=takes, outputs=gives)

    def metadata(self) -> ModelMetadata:
        """Return the metadata in the Open Inference Protocol's form."""
        inputs = [tensor for field in self.inputs.values() for tensor in field.metadata()]
        outputs = [tensor for field in self.outputs.values() for tensor in field.metadata()]
        return ModelMetadata(self.name, [], "bentoml", inputs, outputs)


def _completed(field: SchemaField, tensors: Sequence[TensorMetadata]) -> SchemaField:
    for tensor in tensors:
        if tensor.name == field.name and field.kind in ("tensor", "any"):
            datatype, shape = field.datatype or tensor.datatype, tensor.shape if field.shape is None else field.shape
            return field._replace(kind="tensor", datatype=datatype, shape=shape)
    return field


class _Route(msgspec.Struct):
    name: str
    route: str
    input: dict[str, Any] = {}
    output: dict[str, Any] = {}
    is_task: bool = False


class _Schema(msgspec.Struct):
    routes: list[_Route]


_schema = msgspec.json.Decoder(_Schema).decode


def decode_schema(body: bytes) -> dict[str, Api]:
    """Decode the methods, by their name and by their route without its first slash. Raises `BackendError`."""
    try:
        apis = [_api(route) for route in _schema(body).routes]
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, ValueError, TypeError, AttributeError):
        raise decoding.bad_response("The upstream's schema cannot be decoded.") from None
    return {api.route.lstrip("/"): api for api in apis} | {api.name: api for api in apis}


def _api(route: _Route) -> Api:
    given, gives = route.input, route.output
    is_root, is_object = bool(given.get("root_input")), _is_object(gives)
    return Api(
        route.name,
        route.route,
        {INPUT: _field(INPUT, given)} if is_root else _fields(given),
        _fields(gives) if is_object else {OUTPUT: _field(OUTPUT, gives)},
        is_root=is_root,
        is_object=is_object,
        is_stream=bool(gives.get("is_stream")),
        is_task=route.is_task,
    )


def _is_object(schema: dict[str, Any]) -> bool:
    return schema.get("type") == "object" and isinstance(schema.get("properties"), dict)


def _fields(schema: dict[str, Any]) -> dict[str, SchemaField]:
    required = schema.get("required") or []
    properties = schema.get("properties") or {}
    return {name: _field(name, one, name in required) for name, one in properties.items()}


def _field(name: str, schema: dict[str, Any], required: bool = True) -> SchemaField:
    kind = schema.get("type")
    if kind == "tensor":
        shape = schema.get("shape")
        datatype = _DATATYPES.get(str(schema.get("dtype") or ""), "")
        return SchemaField(
            name, "tensor", datatype, None if shape is None else tuple(map(int, shape)), required=required
        )
    if kind == "dataframe":
        return SchemaField(name, "dataframe", columns=tuple(map(str, schema.get("columns") or ())), required=required)
    if kind == "file":
        return SchemaField(name, "file", "BYTES", (1,), required=required)
    if kind in _SCALARS:
        return SchemaField(name, "scalar", _SCALARS[kind], (1,), required=required)
    if kind == "array":
        return _array(name, schema, required)
    if kind == "object":
        return SchemaField(name, "json", "BYTES", (1,), required=required)
    return SchemaField(name, "any", required=required)


def _array(name: str, schema: dict[str, Any], required: bool) -> SchemaField:
    """Convert an array's schema: a tensor for lists of one scalar type, elements for files, else a value of JSON."""
    rank, item = 0, schema
    while isinstance(item, dict) and item.get("type") == "array" and rank < _DEEPEST:
        rank, item = rank + 1, item.get("items") or {}
    shape = (-1,) * rank
    if item.get("type") == "file" and rank == 1:
        return SchemaField(name, "file", "BYTES", shape, required=required)
    if item.get("type") in _SCALARS:
        return SchemaField(name, "tensor", _SCALARS[item["type"]], shape, required=required)
    return SchemaField(name, "json", "BYTES", (1,), required=required)
