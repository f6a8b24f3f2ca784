"""Codec of TensorFlow Serving's `Predict` over gRPC, and of the model's name in its messages."""

from array import array
from math import prod
from struct import error, pack, unpack
from typing import Any

from google.protobuf.message import DecodeError

from adapters.errors import CallerError
from adapters.tensors import (
    ITEM_SIZE,
    NO_PARAMETERS,
    Inference,
    Inferred,
    RequestedOutput,
    Tensor,
    join_bytes,
    split_bytes,
)
from adapters.wire import decoding
from adapters.wire.decoding import whole_number
from adapters.wire.oip import json_data as oip_data
from adapters.wire.protos.tfserving import datatypes, serving, tensorflow
from adapters.wire.tfserving.datatypes import DATATYPES, TENSORFLOW_NAMES
from adapters.wire.tfserving.predict_v1 import SERVING, SIGNATURE

# Codec of TensorFlow's tensors in protobuf.
#
# A message has one piece of bytes (`tensor_content`), or values in a field for each kind of datatype. Trailing values
# that equal their predecessor may be omitted. Requests have the bytes. Responses have the values, which clients expect
# since TensorFlow Serving sends them.

MAX_FILLED = 1024 * 1024
"""Bytes of a tensor with omitted values: the bound on the memory that a small message allocates."""
_NUMBERS = {datatype: datatypes.values_by_name[name].number for datatype, name in TENSORFLOW_NAMES.items()}
_DATATYPE_OF = {number: datatype for datatype, number in _NUMBERS.items()}
_FIELDS = {
    "BOOL": "bool_val", "BYTES": "string_val", "FP16": "half_val", "BF16": "half_val",
    "FP32": "float_val", "FP64": "double_val", "INT64": "int64_val", "UINT32": "uint32_val", "UINT64": "uint64_val",
    **dict.fromkeys(("INT8", "INT16", "INT32", "UINT8", "UINT16"), "int_val"),
}  # fmt: skip
_CODES = {**oip_data.CODES, "FP16": "H", "BF16": "H"}
"""Codes of `struct`. The value of a half is its bits."""


def decode_tensor(name: str, message: Any) -> Tensor:
    """Decode a tensor. Raises `CallerError` if it is invalid or the Open Inference Protocol lacks its datatype."""
    datatype = _DATATYPE_OF.get(message.dtype)
    if datatype is None:
        declared = datatypes.values_by_number.get(message.dtype)
        called = message.dtype if declared is None else declared.name
        raise CallerError(f"`{name}` is {called}. Known: {', '.join(sorted(DATATYPES))}.", param=name)
    shape = tuple([dim.size for dim in message.tensor_shape.dim])
    if message.tensor_shape.unknown_rank or (shape and min(shape) < 0):
        raise CallerError(f"The shape of `{name}` is incomplete: give each dimension.", param=name)
    oip_data.check_shape(name, shape)
    if message.tensor_content:
        return Tensor(name, datatype, shape, _content(name, datatype, prod(shape), message.tensor_content))
    return Tensor(name, datatype, shape, _values(name, datatype, prod(shape), message))


def _content(name: str, datatype: str, count: int, content: bytes) -> bytes:
    if datatype == "BYTES":
        return join_bytes(_texts(name, count, content))
    if len(content) != count * ITEM_SIZE[datatype]:
        message = f"`{name}` has {len(content)} bytes, and its shape {count * ITEM_SIZE[datatype]}."
        raise CallerError(message, param=name)
    return content


def _texts(name: str, count: int, content: bytes) -> list[bytes]:
    """Split texts, which follow their lengths; each length is a varint."""
    lengths, at = list[int](), 0
    if count > len(content):
        raise CallerError(f"The number of texts in `{name}` does not match its shape.", param=name)
    try:
        for _ in range(count):
            length = shift = 0
            while content[at] > 127 and shift < 63:
                length |= (content[at] & 127) << shift
                at, shift = at + 1, shift + 7
            lengths.append(length | content[at] << shift)
            at += 1
    except IndexError:
        lengths.append(len(content))
    if at + sum(lengths) != len(content):
        raise CallerError(f"The number of texts in `{name}` does not match its shape.", param=name)
    texts: list[bytes] = []
    for length in lengths:
        texts.append(content[at : at + length])
        at += length
    return texts


def _values(name: str, datatype: str, count: int, message: Any) -> bytes:
    values = getattr(message, _FIELDS[datatype])
    there = len(values)
    if there > count:
        raise CallerError(f"`{name}` has {there} values, and its shape {count}.", param=name)
    if there < count and count * ITEM_SIZE.get(datatype, 4) + _weight(values, count, datatype) > MAX_FILLED:
        raise CallerError(f"`{name}` has {there} values, and its shape {count}: send all of them.", param=name)
    if datatype == "BYTES":
        last = values[-1] if there else b""
        return join_bytes([*values, *[last] * (count - there)])
    if datatype in ("FP32", "FP64") and there == count:
        return array("f" if datatype == "FP32" else "d", values).tobytes()
    last = values[-1] if there else 0
    try:
        return pack(f"<{count}{_CODES[datatype]}", *values, *[last] * (count - there))
    except (error, OverflowError):
        raise CallerError(f"`{name}` has a number that does not fit into {datatype}.", param=name) from None


def _weight(values: Any, count: int, datatype: str) -> int:
    """Return the bytes of `count` repetitions of the last text."""
    return len(values[-1]) * count if datatype == "BYTES" and len(values) else 0


def encode_tensor(message: Any, tensor: Tensor, *, by_value: bool = False) -> None:
    """Fill a message with a tensor, in one piece or (`by_value`) as TensorFlow Serving does. Raises `CallerError`."""
    message.dtype = _NUMBERS[tensor.datatype]
    for size in tensor.shape:
        message.tensor_shape.dim.add(size=size)
    count = prod(tensor.shape)
    if tensor.datatype == "BYTES":
        message.string_val.extend(split_bytes(tensor.data, count, tensor.name))
    elif not by_value:
        message.tensor_content = bytes(tensor.data)
    elif tensor.datatype in ("FP32", "FP64", "BOOL"):
        # The encoded field has the same bytes as the tensor.
        field = tensorflow.TensorProto.DESCRIPTOR.fields_by_name[_FIELDS[tensor.datatype]].number
        if tensor.data:
            message.MergeFromString(_head(field, len(tensor.data)) + bytes(tensor.data))
    else:
        values = unpack(f"<{count}{_CODES[tensor.datatype]}", tensor.data)
        getattr(message, _FIELDS[tensor.datatype]).extend(values)


def _head(field: int, length: int) -> bytes:
    """Encode the tag and the length of a packed field."""
    out = bytearray((field << 3 | 2,))
    while length > 127:
        out.append(length & 127 | 128)
        length >>= 7
    out.append(length)
    return bytes(out)


def put_spec(spec: Any, model: str, version: str, signature: str = "") -> None:
    """Set the name of a model. A version that is not a number is a label."""
    spec.name = model
    if (number := whole_number(version)) is not None:
        spec.version.value = number
    elif version:
        spec.version_label = version
    spec.signature_name = signature


def version_of(spec: Any) -> str:
    """Return the version or the label; empty for the server's choice, which is version 0 in OpenVINO's client."""
    if spec.HasField("version") and spec.version.value:
        return str(spec.version.value)
    return str(spec.version_label)


def decode(kind: Any, message: bytes) -> Any:
    """Decode a client's message. Raises `CallerError`."""
    try:
        return kind.FromString(message)
    except DecodeError:
        raise CallerError(f"The message is not a {kind.DESCRIPTOR.name}.", code="invalid_message") from None


def decode_answer(kind: Any, message: bytes) -> Any:
    """Decode a server's message. Raises `BackendError`."""
    with decoding.Checked(DecodeError):
        return kind.FromString(message)


def decode_request(message: bytes) -> Inference:
    """Decode a client's `PredictRequest`; the signature becomes a parameter. Raises `CallerError`."""
    request = decode(serving.PredictRequest, message)
    inputs = [decode_tensor(name, request.inputs[name]) for name in sorted(request.inputs)]
    outputs = [RequestedOutput(name) for name in dict.fromkeys(request.output_filter)]
    signature = request.model_spec.signature_name
    parameters = {SIGNATURE: signature} if signature not in ("", SERVING) else NO_PARAMETERS
    return Inference(request.model_spec.name, version_of(request.model_spec), "", parameters, inputs, outputs)


def encode_request(inference: Inference, model: str) -> bytes:
    """Encode a `PredictRequest`. `model` is the server's name of the model. Raises `CallerError`."""
    request = serving.PredictRequest(output_filter=[output.name for output in inference.outputs])
    put_spec(request.model_spec, model, inference.model_version, str(inference.parameters.get(SIGNATURE, "")))
    for tensor in inference.inputs:
        encode_tensor(request.inputs[tensor.name], tensor)
    return bytes(request.SerializeToString())


def decode_response(message: bytes, model: str) -> Inferred:
    """Decode a server's `PredictResponse`. `model` is the client's name of the model. Raises `BackendError`."""
    decoded = decode_answer(serving.PredictResponse, message)
    with decoding.Checked(CallerError):
        outputs = [decode_tensor(name, decoded.outputs[name]) for name in sorted(decoded.outputs)]
    return Inferred(model, version_of(decoded.model_spec), outputs=outputs)


def encode_response(inferred: Inferred, model: str, signature: str) -> bytes:
    """Encode a `PredictResponse`. `model` is the client's name of the model. Raises `CallerError`."""
    encoded = serving.PredictResponse()
    put_spec(encoded.model_spec, model, inferred.model_version, signature or SERVING)
    for tensor in inferred.outputs:
        encode_tensor(encoded.outputs[tensor.name], tensor, by_value=True)
    return bytes(encoded.SerializeToString())
