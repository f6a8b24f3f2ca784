"""JSON of the REST interface to messages and back, by the rules of the real server's `json_tensor.cc`."""

from __future__ import annotations

import base64
import json
import math
from typing import Any

import numpy as np
import tensorflow as tf

from tests.servers.stand_ins.tfserving.models import INVALID_ARGUMENT, UNIMPLEMENTED, Failure

_INTEGERS = {"int8": 31, "int16": 31, "int32": 31, "uint8": 31, "int64": 63}
_UNSIGNED = {"uint32": 32, "uint64": 64}


def parse(body: bytes) -> dict[str, Any]:
    if not body:
        raise Failure(INVALID_ARGUMENT, "JSON Parse error: The document is empty")
    try:
        document = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise Failure(INVALID_ARGUMENT, f"JSON Parse error: {error}") from None
    if not isinstance(document, dict):
        raise Failure(INVALID_ARGUMENT, f"JSON Value: {document} Is not object")
    if not isinstance(document.get("signature_name", ""), str):
        raise Failure(INVALID_ARGUMENT, f"JSON Value: {document} 'signature_name' key must be a string value.")
    return document


def is_base64(value: Any) -> bool:
    return isinstance(value, dict) and value.keys() == {"b64"} and isinstance(value["b64"], str)


def tensors(document: dict[str, Any], infos: Any) -> tuple[dict[str, Any], bool]:
    """A request's tensors, and whether they are encoded by row."""
    if "instances" in document:
        if "inputs" in document:
            raise Failure(
                INVALID_ARGUMENT, "Not formatted correctly expecting only one of 'inputs' or 'instances' keys"
            )
        if not isinstance(document["instances"], list):
            raise Failure(INVALID_ARGUMENT, "Excepting 'instances' to be an list/array")
        if not document["instances"]:
            raise Failure(INVALID_ARGUMENT, "No values in 'instances' array")
        return _of_rows(document["instances"], infos), True
    if "inputs" not in document:
        raise Failure(INVALID_ARGUMENT, "Missing 'inputs' or 'instances' key")
    return _of_columns(document["inputs"], infos), False


def _of_rows(rows: list[Any], infos: Any) -> dict[str, Any]:
    named = isinstance(rows[0], dict) and not is_base64(rows[0])
    if not isinstance(rows[0], dict) and len(infos) > 1:
        raise Failure(
            INVALID_ARGUMENT,
            "instances is a plain list, but expecting list of objects as multiple input tensors required as per "
            "tensorinfo_map",
        )
    columns: dict[str, list[Any]] = {}
    for index, row in enumerate(rows):
        if named != (isinstance(row, dict) and not is_base64(row)):
            raise Failure(
                INVALID_ARGUMENT, f"Expecting {'object but got list' if named else 'value/list but got object'} at item"
            )
        values = row if named else {next(iter(infos)): row}
        if values.keys() != infos.keys():
            keys = ",".join(sorted(infos))
            raise Failure(
                INVALID_ARGUMENT,
                f"Failed to process element: {index} of 'instances' list. JSON object: {json.dumps(row)} keys must be "
                f"equal to: {keys}",
            )
        for name, value in values.items():
            columns.setdefault(name, []).append(value)
    return {
        name: _tensor(column, infos[name].dtype, f"Expecting tensor size of {name}") for name, column in columns.items()
    }


def _of_columns(columns: Any, infos: Any) -> dict[str, Any]:
    if not isinstance(columns, dict) or is_base64(columns):
        if len(infos) > 1:
            raise Failure(
                INVALID_ARGUMENT,
                "inputs is a plain value/list, but expecting an object as multiple input tensors required as per "
                "tensorinfo_map",
            )
        columns = {next(iter(infos)): columns}
    for name in infos:
        if name not in columns:
            raise Failure(INVALID_ARGUMENT, f"Missing named input: {name} in 'inputs' object.")
    return {name: _tensor(columns[name], infos[name].dtype, name) for name in infos}


def _tensor(value: Any, dtype: int, where: str) -> Any:
    shape, probe = [], value
    while isinstance(probe, list):
        shape.append(len(probe))
        if not probe:
            break
        probe = probe[0]
    kind = tf.dtypes.as_dtype(dtype)
    flat: list[Any] = []
    _fill(value, 0, shape, kind, flat, where)
    array = np.array(flat, dtype=object if kind == tf.string else kind.as_numpy_dtype)
    return tf.make_tensor_proto(array.reshape(shape), dtype=dtype)


def _fill(value: Any, level: int, shape: list[int], kind: Any, flat: list[Any], where: str) -> None:
    if not isinstance(value, list):
        if level != len(shape):
            raise Failure(
                INVALID_ARGUMENT,
                f"JSON Value: {json.dumps(value)} found at incorrect level: {level + 1} in the JSON DOM. Expected at "
                f"level: {len(shape)}",
            )
        flat.append(_element(value, kind))
        return
    if level >= len(shape):
        raise Failure(INVALID_ARGUMENT, f"Encountered list at unexpected level: {level} expected < {len(shape)}")
    if len(value) != shape[level]:
        raise Failure(
            INVALID_ARGUMENT,
            f"{where}: Encountered list at unexpected size: {len(value)} at level: {level} "
            f"expected size: {shape[level]}",
        )
    for item in value:
        _fill(item, level + 1, shape, kind, flat, where)


def _element(value: Any, kind: Any) -> Any:
    name, plain = kind.name, type(value)
    if kind == tf.string:
        if is_base64(value):
            try:
                return base64.b64decode(value["b64"], validate=True)
            except ValueError:
                raise Failure(INVALID_ARGUMENT, "Unable to base64 decode") from None
        if plain is str:
            return value.encode()
    elif name in ("float32", "float64"):
        if plain in (int, float):
            return value
    elif name == "bool":
        if plain is bool:
            return value
    elif name in _INTEGERS or name in _UNSIGNED:
        high = 2 ** (_INTEGERS.get(name) or _UNSIGNED[name])
        low = -high if name in _INTEGERS else 0
        if plain is int and low <= value < high:
            return value
    else:
        raise Failure(UNIMPLEMENTED, f"Conversion of JSON Value: {json.dumps(value)} to type: {name}")
    raise Failure(
        INVALID_ARGUMENT, f"JSON Value: {json.dumps(value)} Type: {plain.__name__} is not of expected type: {name}"
    )


# ── examples ──────────────────────────────────────────────────────────────────────────────────────────


def fill_input(document: dict[str, Any], message: Any) -> None:
    """`examples`, and `context` where there is one."""
    examples = message.example_list
    if "context" in document:
        examples = message.example_list_with_context
        _example(document["context"], examples.context)
    if "examples" not in document:
        raise Failure(INVALID_ARGUMENT, "When method is classify, key 'examples' is expected and was not found")
    if not isinstance(document["examples"], list):
        raise Failure(INVALID_ARGUMENT, "Expecting 'examples' value to be an list/array")
    if not document["examples"]:
        raise Failure(INVALID_ARGUMENT, "'examples' value is an empty array")
    for features in document["examples"]:
        _example(features, examples.examples.add())


def _example(features: Any, example: Any) -> None:
    if not isinstance(features, dict):
        raise Failure(INVALID_ARGUMENT, "Example must be JSON object but got JSON " + type(features).__name__)
    for name, content in features.items():
        feature = example.features.feature[name]
        for value in content if isinstance(content, list) else [content]:
            _feature(value, name, feature)


def _feature(value: Any, name: str, feature: Any) -> None:
    kind, made = "int64_list", value
    if isinstance(value, float):
        kind = "float_list"
    elif isinstance(value, str):
        kind, made = "bytes_list", value.encode()
    elif is_base64(value):
        kind, made = "bytes_list", base64.b64decode(value["b64"])
    elif not isinstance(value, int):
        raise Failure(
            INVALID_ARGUMENT, f"Feature: {name} has element with unexpected JSON type: {type(value).__name__}"
        )
    if feature.WhichOneof("kind") not in (None, kind):
        raise Failure(INVALID_ARGUMENT, f"Unexpected element type in feature: {name} expecting type: {kind}")
    getattr(feature, kind).value.append(made)


# ── answers ───────────────────────────────────────────────────────────────────────────────────────────


def predictions(outputs: Any, *, by_row: bool) -> str:
    """Rows of objects where there are several outputs, whole outputs else."""
    arrays = {name: tf.make_ndarray(outputs[name]) for name in sorted(outputs)}
    columns = {name: _plain(name, array) for name, array in arrays.items()}
    if not by_row:
        return write({"outputs": next(iter(columns.values())) if len(columns) == 1 else columns})
    sizes = {array.shape[:1] for array in arrays.values()}
    if () in sizes:
        raise Failure(INVALID_ARGUMENT, f"Tensor name: {next(iter(arrays))} has no shape information ")
    if len(sizes) > 1:
        raise Failure(INVALID_ARGUMENT, f"Tensor name: {next(iter(arrays))} has inconsistent batch size")
    if len(columns) == 1:
        return write({"predictions": next(iter(columns.values()))})
    rows = zip(*columns.values(), strict=True)
    return write({"predictions": [dict(zip(columns, row, strict=True)) for row in rows]})


def _plain(name: str, array: Any) -> Any:
    if array.dtype.name in ("float16", "bfloat16"):
        raise Failure(INVALID_ARGUMENT, f"Failed to write JSON value for tensor type: {array.dtype.name}")
    values: Any = array.tolist()
    if array.dtype.kind == "f":
        return _each(values, lambda value: _Decimal(value, array.dtype.name))
    if array.dtype.kind in "OS":
        if name.endswith("_bytes"):
            return _each(values, lambda value: {"b64": base64.b64encode(value).decode()})
        return _each(values, lambda value: value.decode(errors="replace"))
    return values


def _each(values: Any, change: Any) -> Any:
    return [_each(value, change) for value in values] if isinstance(values, list) else change(values)


class _Decimal(float):
    """A number in its shortest exact form; NaN and the infinities are written by name."""

    def __new__(cls, value: float, kind: str) -> _Decimal:
        return super().__new__(
            cls, float(str(np.float32(value))) if kind == "float32" and math.isfinite(value) else value
        )


def write(value: Any) -> str:
    return json.dumps(value)


def decimal(value: float) -> float:
    """A float32 in its shortest exact form."""
    return _Decimal(value, "float32")
