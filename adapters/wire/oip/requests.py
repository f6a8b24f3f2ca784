"""Encodes and decodes Open Inference Protocol requests over HTTP, with the binary extension.

With the extension, a body is a JSON object, whose length is in a header, and then the data of the inputs that have a
`binary_data_size`, in their order. Decoded binary data is a view of the body, not a copy.
"""

import re
from collections.abc import Sequence
from math import prod
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Raw

from adapters.errors import CallerError
from adapters.tensors import (
    BINARY,
    BINARY_OUTPUT,
    BINARY_SIZE,
    FRAMING,
    ITEM_SIZE,
    NO_PARAMETERS,
    SHARED_MEMORY,
    Data,
    Inference,
    Parameter,
    Parameters,
    RequestedOutput,
    Tensor,
)
from adapters.wire import decoding
from adapters.wire.decoding import whole_number
from adapters.wire.oip import json_data as oip_data
from adapters.wire.oip import parameters as oip_parameters

HEADER = "inference-header-content-length"
RAW = "raw_input"
"""The placeholder name of the only input of a raw request; `adapters.upstreams.inference` replaces it."""

_ABSENT = Raw(b"")
_PARAMETER_PATH = re.compile(r"`\$(?:\.parameters)?\.(\w+)`$")
"""The place of an invalid parameter in msgspec's error."""
_RAW_PARAMETERS: dict[str, Parameter] = {BINARY_OUTPUT: True}

Dim = Annotated[int, Meta(ge=0, le=2**31 - 1)]
ParametersField = dict[str, str | int | float | bool] | None


class _Input(msgspec.Struct, gc=False, omit_defaults=True):
    name: str
    shape: tuple[Dim, ...]
    datatype: str
    parameters: ParametersField = None
    data: Raw = _ABSENT


class _Output(msgspec.Struct, gc=False, omit_defaults=True):
    name: str
    parameters: ParametersField = None


class _Request(msgspec.Struct, gc=False, omit_defaults=True):
    inputs: list[_Input]
    id: str | None = None
    parameters: ParametersField = None
    outputs: list[_Output] | None = None


_decode = msgspec.json.Decoder(_Request).decode
encode_json = msgspec.json.Encoder().encode


def header_length(value: str | None) -> int | None:
    """Decode `Inference-Header-Content-Length`; None without a value. Raises `CallerError`."""
    if value is None:
        return None
    if (length := whole_number(value)) is None:
        raise CallerError("Inference-Header-Content-Length is not a number of bytes.", param=HEADER)
    return length


def split(body: bytes, length: int | None) -> tuple[Data, memoryview]:
    """Split a body into the JSON and the binary data. Raises `CallerError`."""
    if length is None:
        return body, memoryview(b"")
    if length > len(body):
        raise CallerError(
            f"Inference-Header-Content-Length is {length}, and the whole body has {len(body)} bytes.", param=HEADER
        )
    view = memoryview(body)
    return view[:length], view[length:]


def decode_request(body: bytes, header_length: int | None, model_name: str, model_version: str = "") -> Inference:
    """Decode a request. Raises `CallerError` that names the fault and the change to make.

    If `header_length` is 0, the body is the data of the model's only input. Its name, datatype and shape come from the
    model's metadata: see `adapters.upstreams.inference`.
    """
    if header_length == 0:
        tensor = Tensor(RAW, "", (), memoryview(body))
        return Inference(model_name, model_version, "", _RAW_PARAMETERS, [tensor], [])
    head, rest = split(body, header_length)
    try:
        request = _decode(head)
    except decoding.MALFORMED_JSON as error:
        raise not_json(error) from None
    at, inputs = 0, list[Tensor]()
    for item in request.inputs:
        parameters = item.parameters
        size = parameters.pop(BINARY_SIZE, None) if parameters else None
        if size is None:
            data: Data = _plain(item, parameters)
        else:
            data = cut(rest, at, size, item.name, item.datatype, item.shape, given=bool(item.data))
            at += len(data)
        inputs.append(Tensor(item.name, item.datatype, item.shape, data, parameters or NO_PARAMETERS))
    if at != len(rest):
        raise CallerError(f"The body has {len(rest) - at} bytes after the data of its last input.")
    outputs = [RequestedOutput(o.name, o.parameters or NO_PARAMETERS) for o in request.outputs or ()]
    _check_names(inputs, outputs)
    _check_parameters(request.parameters, inputs, outputs)
    return Inference(model_name, model_version, request.id or "", request.parameters or NO_PARAMETERS, inputs, outputs)


def _plain(item: _Input, parameters: Parameters | None) -> bytes:
    elsewhere = parameters and SHARED_MEMORY in parameters
    if item.data and not elsewhere:
        return oip_data.read(item.data, item.datatype, item.shape, item.name)
    if item.data:
        raise CallerError(f"Input `{item.name}` is in shared memory and has `data` too. Send one.", param=item.name)
    if elsewhere:
        return b""
    raise CallerError(
        f"Input `{item.name}` has no data. Send `data`, or bytes after the JSON and their `binary_data_size`.",
        param=item.name,
    )


def cut(
    rest: memoryview, at: int, size: Parameter, name: str, datatype: str, shape: tuple[int, ...], *, given: bool
) -> memoryview:
    """Cut a tensor's data out of the binary part. Raises `CallerError` for a wrong size."""
    if given:
        raise CallerError(f"`{name}` has both `data` and `binary_data_size`. Send one.", param=name)
    if type(size) is not int or size < 0:
        raise CallerError(f"The `binary_data_size` of `{name}` is not a number of bytes.", param=name)
    if size > len(rest) - at:
        raise CallerError(f"`{name}` declares {size} bytes after the JSON, and {len(rest) - at} are left.", param=name)
    item = ITEM_SIZE.get(datatype)
    if item is None:
        if datatype != "BYTES":
            raise oip_data.unknown_datatype(datatype, name)
    elif size != prod(shape) * item:
        raise CallerError(
            f"`{name}` has {size} bytes, and {datatype} of shape {list(shape)} has {prod(shape) * item}.", param=name
        )
    return rest[at : at + size]


def _check_parameters(
    parameters: ParametersField, inputs: Sequence[Tensor], outputs: Sequence[RequestedOutput]
) -> None:
    if parameters:
        oip_parameters.check(parameters)
    for tensor in inputs:
        if tensor.parameters:
            oip_parameters.check(tensor.parameters, oip_parameters.OF_AN_INPUT, tensor.name)
    for output in outputs:
        if output.parameters:
            oip_parameters.check(output.parameters, oip_parameters.OF_AN_OUTPUT, output.name)


def _check_names(inputs: list[Tensor], outputs: list[RequestedOutput]) -> None:
    if len({tensor.name for tensor in inputs}) != len(inputs):
        raise CallerError("Two inputs have the same name.", param="inputs")
    if outputs and len({output.name for output in outputs}) != len(outputs):
        raise CallerError("Two requested outputs have the same name.", param="outputs")
    for tensor in inputs:
        oip_data.check_shape(tensor.name, tensor.shape)


def not_json(error: Exception) -> CallerError:
    """The error for a malformed request."""
    if isinstance(error, RecursionError):
        return CallerError("The JSON of the request is nested too deeply.", code="invalid_json")
    if isinstance(error, msgspec.ValidationError):
        parameter = _PARAMETER_PATH.search(str(error))
        return CallerError(f"The request is not valid: {error}.", param=parameter and parameter[1])
    return CallerError(f"The request is not valid JSON: {error}.", code="invalid_json")


def encode_request(inference: Inference, *, binary: bool = True) -> tuple[bytes, int | None]:
    """Encode a request: the body, and the length of its JSON, None if all is JSON. Raises like `request_parts`."""
    head, blobs = request_parts(inference, binary=binary)
    return (b"".join((head, *blobs)), len(head)) if binary else (head, None)


def request_parts(inference: Inference, *, binary: bool) -> tuple[bytes, list[Data]]:
    """Encode a request: its JSON, and the inputs in binary form. Outputs are requested in the same form.

    Raises `CallerError` for a datatype that JSON cannot represent, if `binary` is False.
    """
    blobs: list[Data] = []
    inputs = [describe(tensor, binary, blobs) for tensor in inference.inputs]
    request: dict[str, Any] = {"inputs": inputs}
    if inference.id:
        request = {"id": inference.id, **request}
    if parameters := without_framing(inference.parameters):
        request["parameters"] = parameters
    if inference.outputs:
        request["outputs"] = [_output_fields(output, binary) for output in inference.outputs]
    elif binary:
        request["parameters"] = {**parameters, BINARY_OUTPUT: True}
    return encode_json(request), blobs


class _Id(msgspec.Struct, gc=False):
    id: str | None = None


_id_of = msgspec.json.Decoder(_Id).decode
_fields = msgspec.json.Decoder(dict[str, Raw]).decode


def with_id(body: bytes, length: int | None, id_: str) -> tuple[bytes, int | None]:
    """The body with its own id, or else with this id. Raises `CallerError`."""
    head, rest = split(body, length)
    try:
        if _id_of(head).id:
            return body, length
        head = encode_json({**_fields(head), "id": id_})
    except decoding.MALFORMED_JSON as error:
        raise not_json(error) from None
    return b"".join((head, rest)), None if length is None else len(head)


def _output_fields(output: RequestedOutput, binary: bool) -> dict[str, Any]:
    parameters = without_framing(output.parameters)
    if SHARED_MEMORY not in parameters:
        parameters[BINARY] = binary
    return {"name": output.name, "parameters": parameters}


def describe(tensor: Tensor, binary: bool, blobs: list[Data]) -> dict[str, Any]:
    """Encode a tensor's JSON; binary data is appended to `blobs`."""
    fields: dict[str, Any] = {"name": tensor.name, "datatype": tensor.datatype, "shape": tensor.shape}
    parameters = without_framing(tensor.parameters) if tensor.parameters else None
    if parameters and SHARED_MEMORY in parameters:
        fields["parameters"] = parameters
    elif binary:
        fields["parameters"] = {**(parameters or {}), BINARY_SIZE: len(tensor.data)}
        blobs.append(tensor.data)
    else:
        if parameters:
            fields["parameters"] = parameters
        fields["data"] = oip_data.written(tensor)
    return fields


def without_framing(parameters: Parameters) -> dict[str, Parameter]:
    """The parameters that do not depend on the encoding."""
    return {name: value for name, value in parameters.items() if name not in FRAMING}


# Raw requests of the Open Inference Protocol: the body is one input's data, and the model's metadata describes it.


def complete(inference: Inference, name: str, datatype: str, dims: tuple[int, ...], *, batched: bool) -> Inference:
    """Complete a raw request from the model's only input; `dims` are without the batch. Raises `CallerError`."""
    data = inference.inputs[0].data
    fixed = prod([dim for dim in dims if dim >= 0])
    variable = sum(dim < 0 for dim in dims)
    if datatype == "BYTES":
        if variable or fixed != 1:
            message = f"A raw request is one element, and input `{name}` has the shape {list(dims)}."
            raise CallerError(message, param=name)
        data = len(data).to_bytes(4, "little") + data
    elif datatype not in ITEM_SIZE:
        raise oip_data.unknown_datatype(datatype, name)
    elif variable > 1:
        raise CallerError(
            f"Input `{name}` has several variable dimensions, {list(dims)}: a raw request cannot define them.",
            param=name,
        )
    else:
        row = fixed * ITEM_SIZE[datatype]
        length = len(data) // row if variable and row else 1
        if length * row != len(data):
            raise CallerError(
                f"The body has {len(data)} bytes, which is not input `{name}`: {datatype} of {list(dims)}.", param=name
            )
        dims = tuple(length if dim < 0 else dim for dim in dims)
    shape = (1, *dims) if batched else dims
    return Inference(
        inference.model_name, inference.model_version, "", inference.parameters,
        [Tensor(name, datatype, shape, data)], [],
    )  # fmt: skip


def complete_from_metadata(inference: Inference, inputs: Sequence[tuple[str, str, tuple[int, ...]]]) -> Inference:
    """Complete a raw request from the model's metadata (name, datatype, shape of each input). A first variable
    dimension beside another one is the batch. Raises `CallerError`.
    """
    if len(inputs) != 1:
        raise CallerError(f"A raw request is for models with one input, and this one has {len(inputs)}.")
    name, datatype, shape = inputs[0]
    if shape and shape[0] < 0 and (any(dim < 0 for dim in shape[1:]) or datatype == "BYTES"):
        return complete(inference, name, datatype, shape[1:], batched=True)
    return complete(inference, name, datatype, shape, batched=False)
