"""Encodes and decodes Open Inference Protocol responses over gRPC, single and in streams."""

from functools import lru_cache
from math import prod
from typing import Any, NamedTuple

from google.protobuf.message import DecodeError

from adapters.errors import CallerError
from adapters.tensors import FINAL, ITEM_SIZE, SHARED_MEMORY, Data, Inferred, Parameters, Tensor
from adapters.types import ERROR_CODE
from adapters.wire import decoding
from adapters.wire.oip import proto_contents as oip_contents
from adapters.wire.oip.proto_requests import MAX_CACHED_ENVELOPE, MOST_FIELDS, Described, add_id, describe, put_tensor
from adapters.wire.proto_fields import MalformedMessage, bytes_beside, head, numbers, split, tag
from adapters.wire.protos import inference as messages

_ID, _RAW = tag(3), tag(6)
_STREAMED = tag(2)
_FAILURE = 1
_OF_A_STREAM = frozenset({_FAILURE, 2})
"""Fields of `ModelStreamInferResponse`."""


def encode_infer_response(inferred: Inferred) -> bytes:
    """Encode a response with raw contents."""
    return b"".join(infer_response_parts(inferred))


def infer_response_parts(inferred: Inferred) -> list[Data]:
    """Encode a response in parts, without a copy of its tensors."""
    outputs = inferred.outputs
    described = describe(outputs)
    if described is None:
        parts: list[Data] = [_write(inferred)]
    else:
        parts = [_written(inferred.model_name, inferred.model_version, described)]
    for tensor in outputs:
        parts += (head(_RAW, len(tensor.data)), tensor.data)
    add_id(parts, inferred.id)
    if inferred.parameters:
        message = messages.ModelInferResponse()
        oip_contents.put_parameters(message.parameters, inferred.parameters)
        parts.append(message.SerializeToString())
    return parts


def as_raw(message: bytes) -> bytes:
    """Convert a response to raw contents. Raises `BackendError` for a malformed response."""
    return encode_infer_response(decode_infer_response(message))


def _write(inferred: Inferred) -> bytes:
    message = messages.ModelInferResponse(model_name=inferred.model_name, model_version=inferred.model_version)
    for tensor in inferred.outputs:
        put_tensor(message.outputs, tensor)
    return bytes(message.SerializeToString())


@lru_cache(maxsize=1024)
def _written(name: str, version: str, outputs: tuple[Described, ...]) -> bytes:
    return _write(Inferred(name, version, outputs=[Tensor(*described, b"") for described in outputs]))


class _Envelope(NamedTuple):
    model_name: str
    model_version: str
    parameters: Parameters
    outputs: tuple[Tensor, ...]
    """Outputs without typed contents have no data."""
    typed: bool


def parsed_bytes(message: bytes) -> int:
    """Bytes of a response without its raw contents, which are not parsed."""
    return bytes_beside(message, _RAW, MOST_FIELDS)


def decode_infer_response(message: bytes) -> Inferred:
    """Decode an upstream's response, with raw or typed contents. Raises `BackendError`."""
    with decoding.Checked(MalformedMessage, DecodeError, CallerError):
        envelope, id_, raw = split(message, _ID, _RAW)
        encoded = _cached_read(envelope) if len(envelope) <= MAX_CACHED_ENVELOPE else _read(envelope)
        outputs = list(encoded.outputs) if encoded.typed else _with_data(encoded.outputs, raw)
    return Inferred(encoded.model_name, encoded.model_version, id_, encoded.parameters, outputs)


def _read(envelope: bytes) -> _Envelope:
    message = messages.ModelInferResponse.FromString(envelope)
    typed = any(oip_contents.there(tensor) for tensor in message.outputs)
    outputs = tuple([_output(tensor, typed) for tensor in message.outputs])
    return _Envelope(
        message.model_name, message.model_version, oip_contents.parameters_of(message.parameters), outputs, typed
    )


_cached_read = lru_cache(maxsize=1024)(_read)


def _output(tensor: Any, typed: bool) -> Tensor:
    name, datatype, shape = tensor.name, tensor.datatype, tuple(tensor.shape)
    parameters = oip_contents.parameters_of(tensor.parameters)
    if typed and SHARED_MEMORY not in parameters:
        return Tensor(name, datatype, shape, oip_contents.read(tensor.contents, datatype, shape, name), parameters)
    return Tensor(name, datatype, shape, b"", parameters)


def _with_data(described: tuple[Tensor, ...], raw: list[Data]) -> list[Tensor]:
    """Add raw contents to outputs. Some servers send empty raw contents for an output in shared memory."""
    outputs: list[Tensor] = []
    rest = iter(raw)
    each = len(raw) == len(described)
    for tensor in described:
        name, datatype, shape, parameters = tensor.name, tensor.datatype, tensor.shape, tensor.parameters
        elsewhere = SHARED_MEMORY in parameters
        data = b"" if elsewhere and not each else next(rest, None)
        if data is None:
            if prod(shape):
                raise MalformedMessage("an output has no contents")
            data = b""
        elif not elsewhere and (size := ITEM_SIZE.get(datatype)) is not None and len(data) != size * prod(shape):
            raise MalformedMessage("an output's size does not match its shape")
        outputs.append(Tensor(name, datatype, shape, data, parameters))
    return outputs


# ── in a stream ───────────────────────────────────────────────────────────────────────────────────────


def encode_stream_response(response: bytes) -> bytes:
    """One encoded response as a message of `ModelStreamInfer`."""
    return b"".join(stream_response_parts([response]))


def stream_response_parts(response: list[Data]) -> list[Data]:
    """The parts of one encoded response as parts of a message of `ModelStreamInfer`."""
    return [head(_STREAMED, sum(map(len, response))), *response]


def parameters_marker(parameters: Parameters) -> bytes:
    """The part to append to a message of a stream to add parameters to its response.

    Protobuf merges the two occurrences of the response, so the tensors are not read.
    """
    return encode_stream_response(encode_infer_response(Inferred("", parameters=parameters)))


_FINAL = tuple(parameters_marker({FINAL: final}) for final in (False, True))
_FINAL_NAME = FINAL.encode()


def final_marker(final: bool) -> bytes:
    """The part to append to a message of a stream to add the parameter `triton_final_response` to its response."""
    return _FINAL[final]


def is_final(message: bytes) -> bool:
    """Whether the response in a message of a stream has the parameter `triton_final_response`."""
    try:
        _, _, responses = split(message, tag(_FAILURE), _STREAMED)
        return any(_FINAL_NAME in split(response, _ID, _RAW)[0] for response in responses)
    except MalformedMessage:
        return False


def encode_stream_error(message: str, id_: str = "", model: str = "", code: str = "") -> bytes:
    """Encode the failure of one request, which does not end the stream; `id_` is the request's.

    `model` is given only if the model itself failed, which distinguishes a failure from a refusal for Triton's clients.
    `code` is the stable code of the error, for Headrace's own clients.
    """
    encoded = messages.ModelStreamInferResponse(error_message=message)
    if id_:
        encoded.infer_response.id = id_
    if model:
        encoded.infer_response.model_name = model
    if code:
        encoded.infer_response.parameters[ERROR_CODE].string_param = code
    return bytes(encoded.SerializeToString())


def decode_stream_error(message: bytes) -> tuple[str, bool, str]:
    """A failure's message, whether the model itself failed, and the error code that a bundled runtime sends. Raises
    `BackendError` for a malformed message."""
    encoded = _streamed(message)
    response = encoded.infer_response
    code = response.parameters[ERROR_CODE].string_param if ERROR_CODE in response.parameters else ""
    return encoded.error_message, bool(response.model_name), code


def is_bare(message: bytes) -> bool:
    """Whether a message of a stream is a `ModelInferResponse` itself, as MLServer sends them. Raises `BackendError`."""
    with decoding.Checked(MalformedMessage, subject="stream"):
        return not numbers(message) <= _OF_A_STREAM


def is_failure(message: bytes) -> bool:
    """Whether a message of a stream, which is not bare, is a failure."""
    return _FAILURE in numbers(message)


def split_stream_response(message: bytes) -> tuple[str, bytes]:
    """Split a message of a stream into a failure and one encoded response. Raises `BackendError`."""
    if is_bare(message):
        return "", message
    encoded = _streamed(message)
    return encoded.error_message, encoded.infer_response.SerializeToString()


def _streamed(message: bytes) -> Any:
    with decoding.Checked(DecodeError, subject="stream"):
        return messages.ModelStreamInferResponse.FromString(message)
