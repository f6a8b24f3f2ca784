"""Triton's generate extension: JSON objects whose keys are the names of tensors.

A key that names an input becomes that tensor; any other is a parameter of the request, and so are those within
`parameters`. The object has no shapes: they come from the model's metadata. A stream has one object in each event, and
no event marks its end.
"""

from collections.abc import Mapping
from math import prod
from typing import Any

import msgspec
from msgspec import Raw

from adapters.errors import CallerError
from adapters.tensors import FINAL, Inference, Inferred, Parameter, Tensor, join_bytes
from adapters.wire import decoding
from adapters.wire.oip import json_data as oip_data
from adapters.wire.oip import parameters as oip_parameters
from adapters.wire.oip import requests as oip
from adapters.wire.oip.bodies import TensorMetadata

_fields = msgspec.json.Decoder(dict[str, Raw]).decode
_scalar = msgspec.json.Decoder(str | int | float | bool).decode
_id = msgspec.json.Decoder(str).decode
_object = msgspec.json.Decoder(dict[str, Any]).decode
_count = msgspec.json.Decoder(list[Raw]).decode


def decode_generate(
    body: bytes, model_name: str, model_version: str, inputs: Mapping[str, TensorMetadata]
) -> Inference:
    """Decode a request. Raises `CallerError` that names the key at fault."""
    fields = _open(body, "body")
    parameters: dict[str, Parameter] = {}
    tensors: dict[str, Tensor] = {}
    inference = Inference(model_name, model_version)
    if "id" in fields and "id" not in inputs:
        inference.id = _read(_id, fields.pop("id"), "id")
    if (nested := fields.pop("parameters", None)) is not None:
        for name, value in _open(nested, "`parameters`").items():
            fields.setdefault(name, value)
    for name, value in fields.items():
        if (metadata := inputs.get(name)) is not None:
            tensors[name] = _tensor(value, metadata)
        else:
            parameters[name] = _read(_scalar, value, name)
    oip_parameters.check(parameters)
    inference.inputs, inference.parameters = list(tensors.values()), parameters
    return inference


def _tensor(value: Raw, metadata: TensorMetadata) -> Tensor:
    """One element, or a flat list of them, in the model's own shape."""
    name, datatype = metadata.name, metadata.datatype
    if bytes(memoryview(value)[:1]) != b"[":
        value = Raw(b"[%b]" % bytes(value))
    count = len(_read(_count, value, name))
    shape = _shape(count, metadata)
    return Tensor(name, datatype, shape, oip_data.read(value, datatype, shape, name))


def _shape(count: int, metadata: TensorMetadata) -> tuple[int, ...]:
    """The shape of so many elements: the innermost variable dimension takes the rest, the others are 1."""
    fixed = prod([dim for dim in metadata.shape if dim >= 0])
    last = max((i for i, dim in enumerate(metadata.shape) if dim < 0), default=None)
    left, rest = divmod(count, fixed) if fixed else (0, count)
    if rest or (last is None and left != 1):
        raise CallerError(
            f"`{metadata.name}` has {count} elements, which do not make up its shape {list(metadata.shape)}.",
            param=metadata.name,
        )
    return tuple(dim if dim >= 0 else left if i == last else 1 for i, dim in enumerate(metadata.shape))


def _open(body: bytes | Raw, noun: str) -> dict[str, Raw]:
    try:
        return _fields(body)
    except msgspec.ValidationError:
        raise CallerError(f"The {noun} must be a JSON object.", code="invalid_json") from None
    except decoding.MALFORMED_JSON as error:
        raise oip.not_json(error) from None


def _read(decode: Any, value: Raw, name: str) -> Any:
    try:
        return decode(value)
    except decoding.MALFORMED_JSON as error:
        raise CallerError(f"`{name[:64]}` is not valid: {error}.", param=name[:64]) from None


def decode_texts(data: bytes) -> Inferred:
    """Decode a response without metadata: its texts are outputs, its other scalars parameters.

    Values that are neither, nor lists of texts or of numbers, are left out. Raises `BackendError`.
    """
    fields = decoding.decode(_object, data)
    heads = {name: str(fields.pop(name, "")) for name in ("model_name", "model_version", "id")}
    inferred, parameters = Inferred(heads["model_name"], heads["model_version"], heads["id"]), dict[str, Any]()
    for name, value in fields.items():
        elements = value if isinstance(value, list) else [value]
        if all(isinstance(each, str) for each in elements):
            content = join_bytes([each.encode("utf-8", "surrogatepass") for each in elements])
            inferred.outputs.append(Tensor(name, "BYTES", (len(elements),), content))
        elif all(isinstance(each, int | float) for each in elements):
            parameters[name] = value
    inferred.parameters = parameters
    return inferred


def encode_generate(inferred: Inferred) -> bytes:
    """Encode a response. Raises `CallerError` for an output that JSON cannot represent."""
    fields: dict[str, Any] = {"model_name": inferred.model_name, "model_version": inferred.model_version}
    if inferred.id:
        fields["id"] = inferred.id
    fields.update({name: value for name, value in inferred.parameters.items() if name != FINAL})
    for tensor in inferred.outputs:
        elements = oip_data.written(tensor)
        fields[tensor.name] = elements[0] if len(elements) == 1 else elements
    return oip.encode_json(fields)
