"""BentoML calls: encodes tensors as the arguments of a method, and decodes its response."""

import hashlib
from collections.abc import Sequence
from itertools import chain
from struct import error, pack
from typing import Any

import msgspec

from adapters.errors import CallerError
from adapters.tensors import Inference, Tensor, element_count, join_bytes, split_bytes
from adapters.wire import decoding
from adapters.wire.apps.bentoml_schema import OUTPUT, Api, SchemaField
from adapters.wire.oip import json_data as oip_data
from adapters.wire.tfserving.predict_v1_responses import nested

# Decodes tensors from plain JSON values, for servers whose bodies have no shapes or datatypes.

_encode = msgspec.json.Encoder().encode
_NONE = type(None)
_FLOATS: list[set[type]] = [{float}, {int, float}, {_NONE}, {int, _NONE}, {float, _NONE}, {int, float, _NONE}, set()]
_TYPES: dict[frozenset[type], str] = {
    **{frozenset(kinds): "FP64" for kinds in _FLOATS},
    frozenset({bool}): "BOOL",
    frozenset({int}): "INT64",
    frozenset({str}): "BYTES",
}
"""Datatypes inferred from the elements of a JSON list, as numpy infers them; null is NaN."""


def tensor_of(value: Any, name: str, datatype: str = "") -> Tensor:
    """Decode a value to the tensor `name`.

    A scalar becomes one element, and a value that is neither a number nor a text becomes its JSON. Raises
    `BackendError` if the value does not fit a given `datatype`.
    """
    dims, flat = _flattened(value)
    if flat is None and datatype not in ("", "BYTES"):
        raise decoding.bad_response(f"The upstream's output `{name}` is not an array of {datatype}.")
    if flat is None:
        return Tensor(name, "BYTES", (1,), join_bytes([_encode(value)]))
    kinds = frozenset(map(type, flat))
    resolved = datatype or _TYPES.get(kinds)
    if resolved is None:
        return Tensor(name, "BYTES", (1,), join_bytes([_encode(value)]))
    if resolved == "BYTES":
        flat = [one if isinstance(one, str) else _encode(one).decode() for one in flat]
    return Tensor(name, resolved, dims, _packed(flat, resolved, name))


def _flattened(value: Any) -> tuple[tuple[int, ...], list[Any] | None]:
    """Return the dimensions and the elements; None if lists of one level differ in length or hold objects."""
    if not isinstance(value, list):
        return (1,), None if isinstance(value, dict) else [value]
    dims, items = [len(value)], value
    while items and isinstance(items[0], list):
        width = len(items[0])
        if len(dims) == oip_data.MAX_RANK or any(not isinstance(i, list) or len(i) != width for i in items):
            return (), None
        dims.append(width)
        items = list(chain.from_iterable(items))
    if {list, dict}.intersection(map(type, items)):
        return (), None
    return tuple(dims), items


def _packed(flat: Sequence[Any], datatype: str, name: str) -> bytes:
    try:
        if datatype == "BYTES":
            return join_bytes([text.encode() for text in flat])
        if datatype in oip_data.FLOATS:
            flat = [float("nan") if one is None else one for one in flat]
        return pack(f"<{len(flat)}{oip_data.CODES[datatype]}", *flat)
    except (error, OverflowError, UnicodeEncodeError, KeyError):
        message = f"The upstream's output `{name[:64]}` is not {datatype}."
        raise decoding.bad_response(message) from None


JSON, OCTETS = "application/json", "application/octet-stream"
PICKLE = "application/vnd.bentoml+pickle"
"""The content type of pickles, which are neither sent nor accepted: unpickling executes the sender's code."""
_MAX_MESSAGE = 2_000
_INTEGERS = frozenset(name for name in oip_data.CODES if "INT" in name)
_FITS = {"INT64": _INTEGERS, "FP64": _INTEGERS | oip_data.FLOATS, "BOOL": {"BOOL"}, "BYTES": {"BYTES"}}
"""Datatypes that an argument of a plain type accepts."""

_QUOTED = str.maketrans({'"': "%22", "\r": "%0D", "\n": "%0A"})
"""Characters that are escaped in the name of a part, in the encoding of browsers."""

_decode = msgspec.json.Decoder().decode


# ── requests ──────────────────────────────────────────────────────────────────────────────────────────


def encode_call(api: Api, inference: Inference) -> tuple[bytes, str]:
    """Encode a call. Returns the body and its content type. Raises `CallerError` that names the invalid argument."""
    values: dict[str, Any] = {}
    for tensor in inference.inputs:
        field, column = _field_of(api, tensor.name)
        if column:
            values.setdefault(field.name, {})[column] = nested(tensor)
        else:
            values[field.name] = _value(field, tensor)
    for name, value in inference.parameters.items():
        if name in api.inputs:
            values.setdefault(name, value)
    if missing := [name for name, field in api.inputs.items() if field.required and name not in values]:
        raise CallerError(f"The input `{missing[0]}` is missing.", param=missing[0])
    if api.is_root:
        (value,) = values.values()
        return _root(value)
    if any(field.kind == "file" for field in api.inputs.values()):
        return _multipart(values)
    return _encode(values), JSON


def _field_of(api: Api, name: str) -> tuple[SchemaField, str]:
    """Return the argument of a tensor, and the column if the argument is a data frame."""
    if (field := api.inputs.get(name)) is not None:
        return field, ""
    frame, _, column = name.partition(".")
    field = api.inputs.get(frame)
    if field is not None and field.kind == "dataframe" and column and (not field.columns or column in field.columns):
        return field, column
    declared = ", ".join(tensor.name for field in api.inputs.values() for tensor in field.metadata())
    raise CallerError(f"The model has no input `{name[:64]}`. It has: {declared}.", param=name)


def _value(field: SchemaField, tensor: Tensor) -> Any:
    if field.kind == "file":
        return split_bytes(_checked(field, tensor).data, element_count(tensor.shape), field.name)
    if field.kind in ("dataframe", "any"):
        return nested(tensor)
    if field.kind == "tensor":
        return nested(_checked(field, tensor))
    if tensor.datatype not in _FITS[field.datatype]:
        raise CallerError(
            f"Input `{field.name}` is {field.datatype}, and was sent {tensor.datatype}.", param=field.name
        )
    elements = oip_data.written(tensor)
    if len(elements) != 1:
        raise CallerError(f"Input `{field.name}` takes one element, and has {len(elements)}.", param=field.name)
    return _parsed(elements[0], field.name) if field.kind == "json" else elements[0]


def _checked(field: SchemaField, tensor: Tensor) -> Tensor:
    """Check a tensor against its argument: the server would reshape and convert it without an error."""
    if field.datatype and tensor.datatype != field.datatype:
        raise CallerError(
            f"Input `{field.name}` is {field.datatype}, and was sent {tensor.datatype}.", param=field.name
        )
    shape = field.shape
    if shape is not None and (
        len(shape) != len(tensor.shape)
        or any(dim not in (-1, sent) for dim, sent in zip(shape, tensor.shape, strict=True))
    ):
        raise CallerError(
            f"Input `{field.name}` has the shape {list(shape)}, and was sent {list(tensor.shape)}.", param=field.name
        )
    return tensor


def _parsed(text: str, name: str) -> Any:
    try:
        return _decode(text)
    except (msgspec.DecodeError, RecursionError):
        raise CallerError(f"Input `{name}` takes a JSON text.", param=name) from None


def _root(value: Any) -> tuple[bytes, str]:
    """Encode the only argument as the body: texts and files unchanged, other values as JSON."""
    if isinstance(value, str):
        return value.encode(), "text/plain"
    if isinstance(value, list) and value and isinstance(value[0], bytes):
        return value[0], OCTETS
    return _encode(value), JSON


def _multipart(values: dict[str, Any]) -> tuple[bytes, str]:
    """Encode a form: files unchanged, other values as JSON. The boundary is a digest of all files."""
    parts: list[tuple[str, bytes]] = []
    for name, value in values.items():
        disposition = f'form-data; name="{name.translate(_QUOTED)}"'
        if isinstance(value, list) and value and isinstance(value[0], bytes):
            parts += ((f'{disposition}; filename="file"\r\nContent-Type: {OCTETS}', file) for file in value)
        else:
            parts.append((disposition, _encode(value)))
    boundary = hashlib.blake2b(b"".join(data for _, data in parts), digest_size=24).hexdigest()
    lines = [f"--{boundary}\r\nContent-Disposition: {head}\r\n\r\n".encode() + data + b"\r\n" for head, data in parts]
    return b"".join((*lines, f"--{boundary}--\r\n".encode())), f"multipart/form-data; boundary={boundary}"


# ── responses ─────────────────────────────────────────────────────────────────────────────────────────


def decode_answer(api: Api, body: bytes, content_type: str) -> list[Tensor]:
    """Decode the response of a method. Raises `BackendError` if it does not fit the schema."""
    whole = None if api.is_object else next(iter(api.outputs.values()))
    if not content_type.startswith(JSON):
        if whole is not None and whole.kind == "tensor":
            raise decoding.bad_response("The upstream's response has the wrong content type.")
        name = OUTPUT if whole is None else whole.name
        return [Tensor(name, "BYTES", (1,), join_bytes([body]))]  # a text or a file
    value = decoding.decode(_decode, body)
    if isinstance(value, dict) and (whole is None or whole.kind in ("json", "dataframe", "any")):
        return [_output(api.outputs.get(name), name, one) for name, one in value.items()]
    if whole is None:
        raise decoding.bad_response("The upstream's response is not an object.")
    if value is None and whole.kind == "tensor":
        raise decoding.bad_response("The upstream's response is not a tensor.")
    if whole.kind == "dataframe" and isinstance(value, list) and all(isinstance(row, dict) for row in value):
        return _columns(value)
    return [_output(whole, whole.name, value)]


def _output(field: SchemaField | None, name: str, value: Any) -> Tensor:
    if field is not None and field.kind == "json":
        return Tensor(name, "BYTES", (1,), join_bytes([_encode(value)]))
    return tensor_of(value, name, "" if field is None else field.datatype)


def _columns(rows: list[dict[str, Any]]) -> list[Tensor]:
    """Convert a data frame's records to one tensor for each column."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    return [tensor_of([row.get(name) for row in rows], name) for name in names]


# ── refusals ──────────────────────────────────────────────────────────────────────────────────────────


def error_of(body: bytes) -> str | None:
    """Return the message of a 4xx, with each invalid argument. A method returns its own refusal in a list."""
    try:
        decoded = _decode(body)
    except decoding.MALFORMED_JSON:
        return None
    if isinstance(decoded, list) and len(decoded) == 1:
        decoded = decoded[0]
    if not isinstance(decoded, dict) or not isinstance(decoded.get("error"), str):
        return None
    details = decoded.get("detail")
    faults = [_fault(one) for one in details if isinstance(one, dict)] if isinstance(details, list) else []
    return "; ".join(faults)[:_MAX_MESSAGE] or decoded["error"][:_MAX_MESSAGE]


def _fault(detail: dict[str, Any]) -> str:
    where = ".".join(str(part) for part in detail.get("loc") or ())
    message = str(detail.get("msg"))
    return f"{where}: {message}" if where else message
