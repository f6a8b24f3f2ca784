"""The Open Inference Protocol over gRPC: requests, both ways.

Of a message, protobuf is given only what tells names, datatypes, shapes and parameters: that is short and mostly
the same from call to call, so it is parsed once and known from then on. Ids and tensors' bytes are cut out of the
message and put into it by their tags; what was cut is a view of the message, no copy. What is known is shared by
requests: nobody may change it.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from google.protobuf.message import DecodeError

from adapters.errors import CallerError
from adapters.tensors import (
    DATATYPES,
    ITEM_SIZE,
    SHARED_MEMORY,
    Data,
    Inference,
    Parameters,
    RequestedOutput,
    Tensor,
    byte_size,
)
from adapters.wire.oip import (
    json_data as oip_data,
)
from adapters.wire.oip import (
    parameters as oip_parameters,
)
from adapters.wire.oip import (
    proto_contents as oip_contents,
)
from adapters.wire.oip import (
    requests as oip,
)
from adapters.wire.proto_fields import MalformedMessage, bytes_beside, head, split, tag
from adapters.wire.protos import inference as messages

MAX_CACHED_ENVELOPE = 1024
"""Bytes. What is longer is parsed each time, so that what is remembered stays small."""

MOST_FIELDS = 1024
"""A message with more of them is parsed slowly."""

_NAME, _VERSION, _ID, _RAW = tag(1), tag(2), tag(3), tag(7)

Described = tuple[str, str, tuple[int, ...]]
"""Name, datatype and shape."""


class _Input(NamedTuple):
    """`size` is None where only the data itself tells; `data` where it is among the raw contents."""

    name: str
    datatype: str
    shape: tuple[int, ...]
    parameters: Parameters
    size: int | None
    data: bytes | None


class _Asked(NamedTuple):
    model_name: str
    model_version: str
    parameters: Parameters
    inputs: tuple[_Input, ...]
    outputs: tuple[RequestedOutput, ...]
    raw: Sequence[bytes]
    """Raw contents behind a tag that nobody knows."""
    typed: bool


def parsed_bytes(message: bytes) -> int:
    """Bytes of a request that take parsing: raw contents do not."""
    return bytes_beside(message, _RAW, MOST_FIELDS)


def decode_infer_request(message: bytes) -> Inference:
    """Raises `CallerError` that names what is wrong and what to change."""
    try:
        envelope, id_, raw = split(message, _ID, _RAW)
        request = _known(envelope) if len(envelope) <= MAX_CACHED_ENVELOPE else _read(envelope)
    except (MalformedMessage, DecodeError, UnicodeDecodeError):
        raise CallerError("The message is not a ModelInferRequest.", code="invalid_message") from None
    if request.raw:
        raw += request.raw
    if raw and request.typed:
        raise CallerError("Inputs have both `contents` and `raw_input_contents`. Send one kind for all.")
    rest, inputs = iter(raw), list[Tensor]()
    for name, datatype, shape, parameters, size, encoded in request.inputs:
        data = encoded if encoded is not None else next(rest, None)
        if data is None:
            data = _nothing(name, size, raw)
        elif size is not None and len(data) != size:
            raise CallerError(
                f"Input `{name}` has {len(data)} bytes, and {datatype} of shape {list(shape)} has {size}.", param=name
            )
        inputs.append(Tensor(name, datatype, shape, data, parameters))
    if next(rest, None) is not None:
        raise CallerError(f"There are {len(raw)} `raw_input_contents`, more than inputs that take them.")
    return Inference(request.model_name, request.model_version, id_, request.parameters, inputs, list(request.outputs))


def _nothing(name: str, size: int | None, raw: Sequence[Data]) -> bytes:
    """A tensor without elements may be told with nothing at all."""
    if size != 0 or raw:
        raise CallerError(f"Input `{name}` has neither `contents` nor `raw_input_contents`.", param=name)
    return b""


def _read(envelope: bytes) -> _Asked:
    message = messages.ModelInferRequest.FromString(envelope)
    inputs = tuple([_input(tensor) for tensor in message.inputs])
    outputs = tuple([RequestedOutput(o.name, oip_contents.parameters_of(o.parameters)) for o in message.outputs])
    if len({tensor.name for tensor in inputs}) != len(inputs):
        raise CallerError("Two inputs have the same name.", param="inputs")
    if len({output.name for output in outputs}) != len(outputs):
        raise CallerError("Two of the outputs that are asked for have the same name.", param="outputs")
    parameters = oip_contents.parameters_of(message.parameters)
    oip_parameters.check(parameters)
    for output in outputs:
        oip_parameters.check(output.parameters, oip_parameters.OF_AN_OUTPUT, output.name)
    return _Asked(
        message.model_name,
        message.model_version,
        parameters,
        inputs,
        outputs,
        tuple(message.raw_input_contents),
        any(oip_contents.there(tensor) for tensor in message.inputs),
    )


_known = lru_cache(maxsize=1024)(_read)


def _input(tensor: Any) -> _Input:
    name, datatype, shape = tensor.name, tensor.datatype, tuple(tensor.shape)
    if datatype not in DATATYPES:
        raise oip_data.unknown_datatype(datatype, name)
    if shape and min(shape) < 0:
        raise CallerError(f"The shape {list(shape)} of input `{name}` has a negative dimension.", param=name)
    oip_data.check_shape(name, shape)
    parameters = oip_contents.parameters_of(tensor.parameters)
    oip_parameters.check(parameters, oip_parameters.OF_AN_INPUT, name)
    if SHARED_MEMORY in parameters:
        return _Input(name, datatype, shape, parameters, None, b"")
    size = byte_size(datatype, shape) if datatype in ITEM_SIZE else 0 if 0 in shape else None
    data = oip_contents.read(tensor.contents, datatype, shape, name) if oip_contents.there(tensor) else None
    return _Input(name, datatype, shape, parameters, size, data)


def encode_infer_request(inference: Inference) -> bytes:
    """With raw contents. Raises `CallerError` for a parameter that has no form there."""
    described = describe(inference.inputs)
    if described is None or any(output.parameters for output in inference.outputs):
        envelope = _write(inference)
    else:
        outputs = tuple([output.name for output in inference.outputs])
        envelope = _written(inference.model_name, inference.model_version, described, outputs)
    parts: list[Data] = [envelope]
    if inference.parameters:
        message = messages.ModelInferRequest()
        oip_contents.put_parameters(message.parameters, oip.without_framing(inference.parameters))
        parts.append(message.SerializeToString())
    add_id(parts, inference.id)
    for tensor in inference.inputs:
        if SHARED_MEMORY not in tensor.parameters:
            parts += (head(_RAW, len(tensor.data)), tensor.data)
    return b"".join(parts)


def encode_names(model: str, version: str) -> bytes:
    """Fields that, behind a request, replace its model's name and version."""
    name, number = model.encode(), version.encode()
    return b"".join((head(_NAME, len(name)), name, head(_VERSION, len(number)), number))


def _write(inference: Inference) -> bytes:
    message = messages.ModelInferRequest(model_name=inference.model_name, model_version=inference.model_version)
    for tensor in inference.inputs:
        put_tensor(message.inputs, tensor)
    for output in inference.outputs:
        request = message.outputs.add(name=output.name)
        oip_contents.put_parameters(request.parameters, oip.without_framing(output.parameters))
    return bytes(message.SerializeToString())


@lru_cache(maxsize=1024)
def _written(name: str, version: str, inputs: tuple[Described, ...], outputs: tuple[str, ...]) -> bytes:
    tensors = [Tensor(*described, b"") for described in inputs]
    return _write(Inference(name, version, inputs=tensors, outputs=[RequestedOutput(output) for output in outputs]))


# ── what responses need too ───────────────────────────────────────────────────────────────────────────


def describe(tensors: Sequence[Tensor]) -> tuple[Described, ...] | None:
    """What a message tells of them, to be known by; None where one has parameters of its own."""
    described = list[Described]()
    for tensor in tensors:
        if tensor.parameters:
            return None
        described.append((tensor.name, tensor.datatype, tensor.shape))
    return tuple(described)


def put_tensor(messages: Any, tensor: Tensor) -> Any:
    """Tell of a tensor, without its data."""
    encoded = messages.add(name=tensor.name, datatype=tensor.datatype, shape=tensor.shape)
    oip_contents.put_parameters(encoded.parameters, oip.without_framing(tensor.parameters))
    return encoded


def add_id(parts: list[Data], id_: str) -> None:
    """Both messages have it under the same number."""
    if id_:
        encoded = id_.encode()
        parts += (head(_ID, len(encoded)), encoded)
