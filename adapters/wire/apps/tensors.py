"""Encodes tensors as plain JSON for apps: an object of named lists, or KServe's rows.

Responses are checked against the declared outputs, which define names, datatypes and shapes.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

import msgspec

from adapters.errors import BackendError, CallerError
from adapters.tensors import Inference, Tensor
from adapters.wire import decoding
from adapters.wire.oip.bodies import TensorMetadata
from adapters.wire.tfserving import predict_v1_responses, predict_v1_upstream

Layout = Literal["object", "instances"]
"""`object`: `{"NAME": VALUE}` in both directions. `instances`: `{"instances": [ROW]}` and `{"predictions": [ROW]}`."""
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder().decode


def encode(inference: Inference, layout: Layout) -> bytes:
    """Encode a request's body. Raises `CallerError` for values without a form in JSON, and for tensors without rows."""
    if layout == "instances":
        return predict_v1_upstream.encode_request(inference, by_row=True)
    values = {tensor.name: predict_v1_responses.nested(tensor) for tensor in inference.inputs}
    body = _encode(values)
    return json.dumps(values).encode() if b"null" in body else body


def decode(body: bytes, outputs: Sequence[TensorMetadata], layout: Layout) -> list[Tensor]:
    """Decode a response's tensors. Raises `BackendError` if they do not match the declaration."""
    if layout == "instances":
        fields = {tensor.name: tensor for tensor in predict_v1_upstream.decode_answer(body, outputs, "", "").outputs}
    else:
        fields = _of_object(body, outputs)
    for output in outputs:
        tensor = fields.get(output.name)
        if tensor is None:
            raise _undeclared(f"there is no `{output.name}`")
        if not fits(tensor.shape, output.shape):
            dims, declared = list(tensor.shape), list(output.shape)
            raise _undeclared(f"`{output.name}` has the shape {dims}, and {declared} is declared")
    return [fields[output.name] for output in outputs]


def fits(dims: tuple[int, ...], declared: tuple[int, ...]) -> bool:
    """Whether dimensions match a declared shape."""
    return len(dims) == len(declared) and all(it in (-1, dim) for dim, it in zip(dims, declared, strict=True))


def _of_object(body: bytes, outputs: Sequence[TensorMetadata]) -> dict[str, Tensor]:
    try:
        values = _named(_parse(body), outputs)
        by_name = {output.name: output for output in outputs}
        return {
            name: predict_v1_upstream.tensor_of(name, value, by_name[name])
            for name, value in values.items()
            if name in by_name
        }
    except (ValueError, RecursionError, CallerError) as why:
        raise _undeclared(why.message if isinstance(why, CallerError) else str(why)) from None


def _parse(body: bytes) -> Any:
    """Decode JSON. Python's own parser accepts NaN, which servers in Python write."""
    try:
        return _decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return json.loads(body)


def _named(value: Any, outputs: Sequence[TensorMetadata]) -> Mapping[str, Any]:
    """Return the values by name: a single output may lack its name."""
    if isinstance(value, dict):
        return value
    if len(outputs) == 1:
        return {outputs[0].name: value}
    raise ValueError("it is not an object")


def _undeclared(words: str) -> BackendError:
    message = f"The app's response does not match its declared outputs: {words.rstrip('.')[:300]}."
    return decoding.bad_response(message)


def check_inputs(inference: Inference, inputs: Sequence[TensorMetadata]) -> None:
    """Raise `CallerError`, with Triton's text, for tensors that the model does not accept."""
    model, declared = inference.model_name, {tensor.name: tensor for tensor in inputs}
    for tensor in inference.inputs:
        name, expected = tensor.name, declared.pop(tensor.name, None)
        if expected is None:
            names = ", ".join(one.name for one in inputs)
            message = f"unexpected inference input '{name[:64]}' for model '{model}'. It has: {names}."
            raise CallerError(message, param=name[:64])
        if tensor.datatype != expected.datatype:
            given = f"inference input '{name}' data-type is '{tensor.datatype}'"
            raise CallerError(f"{given}, but model '{model}' expects '{expected.datatype}'", param=name)
        if not fits(tensor.shape, expected.shape):
            shapes = f"Expected {_dims(expected.shape)}, got {_dims(tensor.shape)}."
            raise CallerError(f"unexpected shape for input '{name}' for model '{model}'. {shapes}", param=name)
    for name in declared:
        counts = f"expected {len(inputs)} inputs but got {len(inference.inputs)} inputs for model '{model}'"
        raise CallerError(f"{counts}. Input '{name}' is missing.", param=name)


def _dims(shape: Iterable[int]) -> str:
    return f"[{','.join(map(str, shape))}]"
