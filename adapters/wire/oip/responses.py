"""Encodes and decodes Open Inference Protocol responses over HTTP."""

import json
from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Raw

from adapters.errors import CallerError
from adapters.tensors import (
    BINARY,
    BINARY_OUTPUT,
    BINARY_SIZE,
    NO_PARAMETERS,
    SHARED_MEMORY,
    Data,
    Inference,
    Inferred,
    Parameter,
    Parameters,
    Tensor,
)
from adapters.wire import decoding
from adapters.wire.oip import json_data as oip_data
from adapters.wire.oip import requests as oip

BinaryOutputs = bool | Mapping[str, bool]
"""Outputs in binary form: all or none, or by name."""

ERROR = b'{"error"'
"""The first bytes of an error in the place of a response."""
MAX_MESSAGE = 2_000
_ABSENT = Raw(b"")


class _Output(msgspec.Struct, gc=False):
    name: str
    datatype: str
    shape: tuple[oip.Dim, ...]
    parameters: dict[str, Any] | None = None
    data: Raw = _ABSENT


class _Response(msgspec.Struct, gc=False):
    outputs: list[_Output]
    model_name: str = ""
    model_version: str | None = None
    id: str | None = None
    parameters: dict[str, Any] | None = None


_decode = msgspec.json.Decoder(_Response).decode
_object = msgspec.json.Decoder(dict[str, Raw]).decode


def binary_outputs(inference: Inference) -> BinaryOutputs:
    """The outputs that the response has in binary form: by the output's parameter, else by the request's.

    The decoder ensures that they are booleans.
    """
    default = bool(inference.parameters.get(BINARY_OUTPUT))
    for output in inference.outputs:
        if output.parameters:
            return {o.name: bool(o.parameters.get(BINARY, default)) for o in inference.outputs}
    return default


def json_bytes(inferred: Inferred, binary: BinaryOutputs = False) -> int:
    """Bytes of tensors that `encode_response` writes as JSON."""
    size = 0
    for tensor in inferred.outputs:
        if not (binary if isinstance(binary, bool) else binary.get(tensor.name, False)):
            size += len(tensor.data)
    return size


def encode_response(inferred: Inferred, binary: BinaryOutputs = False) -> tuple[bytes, int | None]:
    """Encode a response: the body, and the length of its JSON, None if all is JSON. Raises like `response_parts`."""
    head, blobs = response_parts(inferred, binary)
    return (b"".join((head, *blobs)), len(head)) if blobs else (head, None)


def response_parts(inferred: Inferred, binary: BinaryOutputs) -> tuple[bytes, list[Data]]:
    """Encode a response: its JSON, and the outputs in binary form.

    Raises `CallerError` for an output that JSON cannot represent and that was not requested in binary form.
    """
    blobs: list[Data] = []
    if isinstance(binary, bool):
        outputs = [oip.describe(tensor, binary, blobs) for tensor in inferred.outputs]
    else:
        outputs = [oip.describe(tensor, binary.get(tensor.name, False), blobs) for tensor in inferred.outputs]
    for tensor, output in zip(inferred.outputs, outputs, strict=True):
        if SHARED_MEMORY in tensor.parameters:
            # As Triton does: its C++ client reads an output with parameters as binary.
            del output["parameters"]
    fields: dict[str, Any] = {"model_name": inferred.model_name, "model_version": inferred.model_version}
    if inferred.id:
        fields["id"] = inferred.id
    if inferred.parameters:
        fields["parameters"] = dict(inferred.parameters)
    fields["outputs"] = outputs
    return oip.encode_json(fields), blobs


def decode_response(body: bytes, header_length: int | None) -> Inferred:
    """Decode an upstream's response. Raises `BackendError`."""
    with decoding.Checked(CallerError, ValueError, OverflowError):
        head, rest = oip.split(body, header_length)
        response = _parse(head)
        at, outputs = 0, list[Tensor]()
        for item in response.outputs:
            size, parameters = _size_of(item.parameters)
            data: Data = b""
            if size is not None:
                data = oip.cut(rest, at, size, item.name, item.datatype, item.shape, given=bool(item.data))
                at += len(data)
            elif SHARED_MEMORY not in parameters:
                data = oip_data.read(item.data, item.datatype, item.shape, item.name, nulls=True)
            outputs.append(Tensor(item.name, item.datatype, item.shape, data, parameters or NO_PARAMETERS))
    response_parameters: Parameters = scalars(response.parameters) or NO_PARAMETERS
    return Inferred(response.model_name, response.model_version or "", response.id or "", response_parameters, outputs)


def _size_of(parameters: dict[str, Any] | None) -> tuple[Parameter | None, dict[str, Parameter]]:
    """The size of a tensor in binary form, None for one in JSON, and the other parameters with scalar values."""
    if parameters is not None and len(parameters) == 1 and type(size := parameters.get(BINARY_SIZE)) is int:
        return size, {}  # the usual output
    others = scalars(parameters)
    return others.pop(BINARY_SIZE, None), others


def _parse(head: Data) -> _Response:
    """Decode JSON. Servers in Python send NaN and Infinity, which are not JSON."""
    try:
        return _decode(head)
    except msgspec.ValidationError:
        raise
    except msgspec.DecodeError:
        return _decode(oip.encode_json(json.loads(bytes(head))))


def scalars(parameters: dict[str, Any] | None) -> dict[str, Parameter]:
    """Parameters with scalar values; some servers add objects."""
    if not parameters:
        return {}
    return {name: value for name, value in parameters.items() if isinstance(value, str | int | float | bool)}


class _Error(msgspec.Struct):
    error: str | dict[str, Any] | None = None
    message: Any = None
    detail: Any = None


_error = msgspec.json.Decoder(_Error).decode


def error_of(body: bytes) -> str | None:
    """The message of an error body, in any server's format; None without a message."""
    try:
        decoded = _error(body)
    except decoding.MALFORMED_JSON:
        return None
    message = decoded.error or decoded.message or decoded.detail
    if isinstance(message, dict):
        message = message.get("message") or message.get("error")
    return None if message is None else str(message)[:MAX_MESSAGE]


def check_object(body: bytes) -> None:
    """Raise `BackendError` unless a body is a JSON object."""
    with decoding.Checked():
        _object(body)  # skips values without a check of their bytes
        if not body.isascii():
            body.decode()


def encode_error(message: str) -> bytes:
    """Encode an error body."""
    return oip.encode_json({"error": message})
