"""Encodes responses of KServe's v1 and TensorFlow Serving's REST: tensors as plain JSON values, with null for NaN."""

import base64
from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

import msgspec

from adapters.errors import BackendError, CallerError
from adapters.tensors import Inferred, Tensor, split_bytes
from adapters.types import Verb
from adapters.wire.decoding import whole_number
from adapters.wire.oip import json_data as oip_data
from adapters.wire.oip.bodies import ModelMetadata, TensorMetadata
from adapters.wire.tfserving.datatypes import TENSORFLOW_NAMES
from adapters.wire.tfserving.predict_v1 import SERVING

encode = msgspec.json.Encoder().encode


def encode_answer(response: Inferred, verb: Verb, *, by_row: bool) -> bytes:
    """Encode a response to a verb. Raises `CallerError` and `BackendError`."""
    if verb == "classify":
        return encode_classes(response)
    if verb == "regress":
        return encode_values(response)
    return encode_predict(response, by_row=by_row, key="explanations" if verb == "explain" else "predictions")


def encode_predict(response: Inferred, *, by_row: bool, key: str = "predictions") -> bytes:
    """Encode rows or whole outputs; a single output has no name. Raises `BackendError` without rows."""
    if not by_row:
        return encode_whole(response, "outputs")
    fields = {tensor.name: nested(tensor) for tensor in response.outputs}
    if len(fields) == 1:
        (rows,) = fields.values()
        return encode({key: rows if isinstance(rows, list) else [rows]})
    columns = list(fields.values())
    if not all(isinstance(column, list) and len(column) == len(columns[0]) for column in columns):
        raise BackendError("The model's outputs have no row for each instance. Send `inputs` instead.")
    return encode({key: [dict(zip(fields, row, strict=True)) for row in zip(*columns, strict=True)]})


def encode_whole(response: Inferred, key: str) -> bytes:
    """Encode whole outputs; a single output has no name."""
    fields = {tensor.name: nested(tensor) for tensor in response.outputs}
    return encode({key: next(iter(fields.values())) if len(fields) == 1 else fields})


def encode_classes(response: Inferred) -> bytes:
    """Encode the labels and scores of each example.

    They are a TensorFlow signature's two outputs, or one output with a score for each class. The key is the one in
    TensorFlow Serving's responses, which differs from its documentation.
    """
    by_name = {tensor.name: tensor for tensor in response.outputs}
    if "classes" in by_name and "scores" in by_name:
        labels, scores = _rows(by_name["classes"]), _rows(by_name["scores"])
        return encode(
            {"results": [[list(pair) for pair in zip(*row, strict=False)] for row in zip(labels, scores, strict=False)]}
        )
    scored = [tensor for tensor in response.outputs if tensor.datatype in oip_data.FLOATS or tensor.datatype == "BYTES"]
    if len(scored) != 1:
        raise CallerError("This model does not classify: it has no output of scores. Use `:predict`.")
    if scored[0].datatype == "BYTES":
        return encode({"results": [_by_index(row) for row in _rows(scored[0])]})
    return encode({"results": [[[str(i), score] for i, score in enumerate(row)] for row in _rows(scored[0])]})


def _by_index(row: Sequence[str]) -> list[list[Any]]:
    """Sort `SCORE:INDEX:LABEL` by index: the classification extension sorts by score, these protocols by index."""
    values = []
    for element in row:
        score, _, rest = element.partition(":")
        index, _, label = rest.partition(":")
        try:
            values.append((int(index), label or index, float(score)))
        except ValueError:
            raise CallerError("This model does not classify: it has no output of scores. Use `:predict`.") from None
    return [[label, score] for _, label, score in sorted(values)]


def encode_values(response: Inferred) -> bytes:
    """Encode the only value of each example."""
    numbers = [tensor for tensor in response.outputs if tensor.datatype not in ("BYTES", "BOOL")]
    if len(numbers) != 1 or ((rows := _rows(numbers[0])) and len(rows[0]) != 1):
        raise CallerError("This model gives no single value for an example. Use `:predict`.")
    return encode({"results": [row[0] for row in rows]})


def _rows(tensor: Tensor) -> list[Sequence[Any]]:
    """Return one list for each row, with all elements of the row."""
    flat, count = _elements(tensor), tensor.shape[0] if tensor.shape else 1
    width = len(flat) // count if count else 0
    return [flat[i * width : (i + 1) * width] for i in range(count)]


def nested(tensor: Tensor) -> Any:
    """Return a tensor's elements in nested lists of its shape. Raises `CallerError` if JSON cannot express them."""
    items: list[Any] = list(_elements(tensor))
    if not tensor.shape:
        return items[0]
    for dim in reversed(tensor.shape[1:]):
        count = len(items) // dim if dim else prod(tensor.shape[:-1])
        items = [items[i * dim : (i + 1) * dim] for i in range(count)]
    return items


def _elements(tensor: Tensor) -> Sequence[Any]:
    """Return a tensor's elements.

    Bytes become texts, or objects with `b64` if the name ends with `_bytes` or if an element is not UTF-8.
    """
    if tensor.datatype != "BYTES":
        return oip_data.written(tensor)
    elements = split_bytes(tensor.data, prod(tensor.shape), tensor.name)
    try:
        if not tensor.name.endswith("_bytes"):
            return [element.decode() for element in elements]
    except UnicodeDecodeError:
        pass
    return [{"b64": base64.b64encode(element).decode()} for element in elements]


# ── metadata and status ───────────────────────────────────────────────────────────────────────────


def encode_metadata(name: str, version: str, model: ModelMetadata) -> bytes:
    """Encode metadata in TensorFlow Serving's form."""
    return encode(
        {
            "model_spec": {"name": name, "signature_name": "", "version": version},
            "metadata": {"signature_def": {"signature_def": signatures_of(model)}},
        }
    )


def signatures_of(model: ModelMetadata) -> dict[str, Any]:
    """Return the signatures that a server reports, or a default signature for the model of another server."""
    return model.signature_def or {
        SERVING: {
            "inputs": {tensor.name: _described(tensor) for tensor in model.inputs},
            "outputs": {tensor.name: _described(tensor) for tensor in model.outputs},
            "method_name": "tensorflow/serving/predict",
        }
    }


def _described(tensor: TensorMetadata) -> dict[str, Any]:
    dims = [{"size": str(dim), "name": ""} for dim in tensor.shape]
    dtype = TENSORFLOW_NAMES.get(tensor.datatype, tensor.datatype)
    return {"dtype": dtype, "tensor_shape": {"dim": dims, "unknown_rank": False}, "name": f"{tensor.name}:0"}


TFSERVING_STATES = {"READY": "AVAILABLE", "UNAVAILABLE": "END", "UNLOADING": "UNLOADING"}
"""TensorFlow Serving's names of the repository extension's states. A version that failed to load is `END`."""


def tfserving_state(state: str) -> str:
    """Return TensorFlow Serving's name of a state; LOADING for any other state, so that clients wait."""
    return TFSERVING_STATES.get(state, "LOADING")


def encode_status(versions: Sequence[str], state: str, reason: str, more: Mapping[str, Any]) -> bytes:
    """Encode the state of each version, with the fields that other protocols have under the same path."""
    code = "OK" if state == "READY" else "UNAVAILABLE"
    encoded = [
        {
            "version": version,
            "state": tfserving_state(state),
            "status": {"error_code": code, "error_message": reason},
        }
        for version in versions
    ]
    return encode({**more, "model_version_status": encoded})


def number(version: str) -> int:
    """Return a version's number, by which versions are sorted; 0 for a version that is not a number."""
    return whole_number(version) or 0
