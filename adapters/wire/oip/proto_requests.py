"""Encodes and decodes Open Inference Protocol requests over gRPC.

Protobuf parses only the envelope: names, datatypes, shapes and parameters. Envelopes are short and repeat from call to
call, so they are cached. Ids and tensor data are cut out of the message and inserted by their tags; the data is a view
of the message, not a copy. Cached envelopes are shared by requests and must not be changed.
"""

import dataclasses
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import msgspec
from google.protobuf.message import DecodeError
from msgspec import Raw
from msgspec.structs import replace

from adapters.errors import CallerError
from adapters.requests import Codec, Fields, InferRequest, ModelRequest, R
from adapters.tensors import (
    DATATYPES,
    ITEM_SIZE,
    SHARED_MEMORY,
    Data,
    Inference,
    Parameter,
    Parameters,
    RequestedOutput,
    Tensor,
    byte_size,
)
from adapters.types import InferKind
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
from adapters.wire.oip.bodies import GrpcPayload
from adapters.wire.oip.request_view import rows_of, separate, sequence_name, with_model, without_model
from adapters.wire.proto_fields import MalformedMessage, bytes_beside, head, split, tag
from adapters.wire.protos import inference as messages

MAX_CACHED_ENVELOPE = 1024
"""Bytes. A longer envelope is parsed each time, so that the cache stays small."""

MOST_FIELDS = 1024
"""Fields. A message with more of them is parsed slowly."""

_NAME, _VERSION, _ID, _RAW = tag(1), tag(2), tag(3), tag(7)

Described = tuple[str, str, tuple[int, ...]]
"""Name, datatype and shape."""


class _Input(NamedTuple):
    """`size` is None if the shape does not define it; `data` is None if it is among the raw contents."""

    name: str
    datatype: str
    shape: tuple[int, ...]
    parameters: Parameters
    size: int | None
    data: bytes | None


class _Envelope(NamedTuple):
    model_name: str
    model_version: str
    parameters: Parameters
    inputs: tuple[_Input, ...]
    outputs: tuple[RequestedOutput, ...]
    raw: Sequence[bytes]
    """Collect raw contents that follow an unknown tag."""
    typed: bool


def parsed_bytes(message: bytes) -> int:
    """Bytes of a request without its raw contents, which are not parsed."""
    return bytes_beside(message, _RAW, MOST_FIELDS)


def decode_infer_request(message: bytes) -> Inference:
    """Decode a request. Raises `CallerError` that names the fault and the change to make."""
    try:
        envelope, id_, raw = split(message, _ID, _RAW)
        request = _cached_read(envelope) if len(envelope) <= MAX_CACHED_ENVELOPE else _read(envelope)
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
    """A tensor without elements may have no contents."""
    if size != 0 or raw:
        raise CallerError(f"Input `{name}` has neither `contents` nor `raw_input_contents`.", param=name)
    return b""


def _read(envelope: bytes) -> _Envelope:
    message = messages.ModelInferRequest.FromString(envelope)
    inputs = tuple([_input(tensor) for tensor in message.inputs])
    outputs = tuple([RequestedOutput(o.name, oip_contents.parameters_of(o.parameters)) for o in message.outputs])
    if len({tensor.name for tensor in inputs}) != len(inputs):
        raise CallerError("Two inputs have the same name.", param="inputs")
    if len({output.name for output in outputs}) != len(outputs):
        raise CallerError("Two requested outputs have the same name.", param="outputs")
    parameters = oip_contents.parameters_of(message.parameters)
    oip_parameters.check(parameters)
    for output in outputs:
        oip_parameters.check(output.parameters, oip_parameters.OF_AN_OUTPUT, output.name)
    return _Envelope(
        message.model_name,
        message.model_version,
        parameters,
        inputs,
        outputs,
        tuple(message.raw_input_contents),
        any(oip_contents.there(tensor) for tensor in message.inputs),
    )


_cached_read = lru_cache(maxsize=1024)(_read)


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
    """Encode a request with raw contents. Raises `CallerError` for a parameter without a form in gRPC."""
    return b"".join(infer_request_parts(inference))


def infer_request_parts(inference: Inference) -> list[Data]:
    """Encode a request in parts, without a copy of its tensors. Raises like `encode_infer_request`."""
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
    return parts


def encode_names(model: str, version: str) -> bytes:
    """Fields that replace the model's name and version when they are appended to a request."""
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


# ── shared with responses ───────────────────────────────────────────────────────────────────────────────


def describe(tensors: Sequence[Tensor]) -> tuple[Described, ...] | None:
    """A cache key for the envelope of these tensors; None if a tensor has parameters."""
    described: list[Described] = []
    for tensor in tensors:
        if tensor.parameters:
            return None
        described.append((tensor.name, tensor.datatype, tensor.shape))
    return tuple(described)


def put_tensor(messages: Any, tensor: Tensor) -> Any:
    """Add a tensor to a message, without its data."""
    encoded = messages.add(name=tensor.name, datatype=tensor.datatype, shape=tensor.shape)
    oip_contents.put_parameters(encoded.parameters, oip.without_framing(tensor.parameters))
    return encoded


def add_id(parts: list[Data], id_: str) -> None:
    """Add an id, which has the same field number in requests and responses."""
    if id_:
        encoded = id_.encode()
        parts += (head(_ID, len(encoded)), encoded)


# The gateway's view of an Open Inference Protocol request over gRPC, which is decoded whole.

_encode = msgspec.json.Encoder().encode
_parameters = msgspec.json.Decoder(dict[str, str | int | float | bool]).decode


def request_of(
    inference: Inference, message: bytes, *, model: str, version: str, kind: InferKind, timeout: float | None = None
) -> InferRequest:
    """The request of a decoded message. Raises `CallerError` for an invalid sequence id."""
    described = [*[each.parameters for each in inference.inputs], *[each.parameters for each in inference.outputs]]
    if any(SHARED_MEMORY in each for each in described):
        raise oip_parameters.in_shared_memory()
    parameters = inference.parameters
    id_ = parameters.get("sequence_id")
    if isinstance(id_, float | bool):
        raise CallerError("`sequence_id` must be a whole number or a text.", param="sequence_id")
    return InferRequest(
        model=model,
        version=version,
        kind=kind,
        stream=kind == "infer_stream",
        payload=GrpcPayload(body=message, decoded=inference),
        size=len(message),
        rows=rows_of(inference.inputs[0].shape) if inference.inputs else 0,
        timeout=timeout,
        sequence=sequence_name(id_),
        starts=parameters.get("sequence_start") is True,
        ends=parameters.get("sequence_end") is True,
        codec=GRPC,
    )


def model_of(message: bytes) -> tuple[str, str]:
    """The name and the version of the model. Raises `CallerError`."""
    request = _parsed(message)
    return request.model_name, request.model_version


def without_parameters(message: bytes, names: frozenset[str]) -> bytes:
    """The message without these parameters. Raises `CallerError`."""
    request = _parsed(message)
    for name in names & request.parameters.keys():
        del request.parameters[name]
    encoded: bytes = request.SerializeToString()
    return encoded


def _parsed(message: bytes) -> Any:
    try:
        return messages.ModelInferRequest.FromString(message)
    except DecodeError:
        raise CallerError("The message is not a ModelInferRequest.", code="invalid_message") from None


class _Grpc(Codec):
    """The codec of these requests."""

    def fields(self, request: ModelRequest) -> Fields:
        assert isinstance(request, InferRequest)
        return without_model(_encoded(request.inference.parameters))

    def rewrite(self, request: R, fields: Fields) -> R:
        assert isinstance(request, InferRequest)
        model, written = with_model(request, fields, _encoded(request.inference.parameters))
        try:
            parameters: dict[str, Parameter] = _parameters(_encode(written))
        except msgspec.ValidationError:
            raise CallerError(
                "A parameter that this route writes has no form over gRPC: only plain values do."
            ) from None
        inference = dataclasses.replace(request.inference, parameters=parameters)
        payload = GrpcPayload(body=encode_infer_request(inference), decoded=inference)
        return replace(request, model=model, payload=payload)

    def separate(self, request: R, tenant: str) -> R:
        return separate(request, tenant)

    def inference(self, request: InferRequest) -> Inference:
        return decode_infer_request(request.payload.body)

    def canonical(self, request: ModelRequest) -> tuple[Data, ...]:
        """The unchanged message, with its id."""
        assert isinstance(request, InferRequest)
        return _encode((request.wire, request.kind, request.model, request.version)), request.payload.body

    def is_deterministic(self, request: ModelRequest) -> bool:
        return True


def _encoded(parameters: Parameters) -> Fields:
    return {name: Raw(_encode(value)) for name, value in parameters.items()}


GRPC = _Grpc()
