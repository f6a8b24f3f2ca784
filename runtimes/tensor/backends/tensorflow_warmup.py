"""The warm-up requests that a SavedModel brings along for TensorFlow Serving: recorded requests in
`assets.extra/tf_serving_warmup_requests`, which are run when it is loaded."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import tensorflow as tf
from google.protobuf.message import DecodeError
from tensorflow.core.framework import tensor_pb2

from adapters.wire.protos.tfserving import serving
from runtimes.tensor.interfaces import ModelLoadError

FILE: Final = Path("assets.extra") / "tf_serving_warmup_requests"
MAX_RECORDS: Final = 1000
"""TensorFlow Serving's own bound."""
_REQUESTS: Final = {2: serving.ClassificationRequest, 3: serving.RegressionRequest, 6: serving.PredictRequest}
"""The requests of a `PredictionLog`, by the field of their log, whose first field they are."""
_LENGTHS: Final = 2


def warm_up(folder: Path, session: Any, graph: Any, signatures: Any, default: str) -> None:
    """Run the recorded requests of a model's folder, if it has any. Raises `ModelLoadError` for one that fails.

    Records of other kinds than predict, classify and regress are left out, and the log has their number.
    """
    if not (path := folder / FILE).is_file():
        return
    left_out = 0
    for number, request in enumerate(_requests(path), 1):
        if request is None:
            left_out += 1
            continue
        if (name := request.model_spec.signature_name or default) not in signatures:
            raise ModelLoadError(f"record {number} of {FILE} names the signature `{name}`, which the model lacks")
        try:
            _run(request, session, graph, signatures[name])
        except Exception as error:
            reason = " ".join(str(error).split())[:300]
            raise ModelLoadError(f"record {number} of {FILE} failed ({type(error).__name__}: {reason})") from error
    if left_out:
        print(f"{FILE}: {left_out} records are no predict, classify or regress, and are left out", file=sys.stderr)


def _requests(path: Path) -> Iterator[Any]:
    """The request of each record; None for another kind. Raises `ModelLoadError`."""
    try:
        for count, record in enumerate(tf.data.TFRecordDataset(str(path)).as_numpy_iterator()):
            if count >= MAX_RECORDS:
                raise ModelLoadError(f"{FILE} has more than {MAX_RECORDS} records")
            yield _request(record)
    except (tf.errors.OpError, DecodeError, ValueError, IndexError):
        raise ModelLoadError(f"{FILE} is damaged, or its records are no PredictionLog") from None


def _request(record: bytes) -> Any:
    for kind, log in _fields(record):
        if kind in _REQUESTS:
            return _REQUESTS[kind].FromString(next((part for field, part in _fields(log) if field == 1), b""))
    return None


def _fields(message: bytes) -> Iterator[tuple[int, bytes]]:
    """The fields of a message that have a length. Raises ValueError and IndexError for no message."""
    at = 0
    while at < len(message):
        tag, at = _number(message, at)
        if tag & 7 != _LENGTHS:
            raise ValueError("a field without a length")
        size, at = _number(message, at)
        if at + size > len(message):
            raise ValueError("a field that is cut off")
        yield tag >> 3, message[at : at + size]
        at += size


def _number(message: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = message[at]
        at += 1
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return value, at
        if shift > 63:
            raise ValueError("a number that is too long")


def _run(request: Any, session: Any, graph: Any, signature: Any) -> None:
    if isinstance(request, serving.PredictRequest):
        arrays = {
            name: tf.make_ndarray(tensor_pb2.TensorProto.FromString(tensor.SerializeToString()))
            for name, tensor in request.inputs.items()
        }
    else:
        examples = [*request.input.example_list.examples, *request.input.example_list_with_context.examples]
        arrays = {next(iter(signature.inputs)): [example.SerializeToString() for example in examples]}
    feeds = {graph.get_tensor_by_name(signature.inputs[name].name): array for name, array in arrays.items()}
    session.run([graph.get_tensor_by_name(one.name) for one in signature.outputs.values()], feeds)
