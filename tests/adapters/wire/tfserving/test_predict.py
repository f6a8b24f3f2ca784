"""TensorFlow's tensors and examples in protobuf, both ways, as numpy and TensorFlow's own words have them."""

import json
import struct
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adapters.errors import BackendError, CallerError
from adapters.tensors import Inference, Inferred, RequestedOutput, Tensor, join_bytes
from adapters.wire.protos.tfserving import serving, tensorflow
from adapters.wire.tfserving import (
    examples as tfserving_examples,
)
from adapters.wire.tfserving import predict
from adapters.wire.tfserving import (
    predict as tfserving_predict,
)
from adapters.wire.tfserving.datatypes import TENSORFLOW_NAMES
from adapters.wire.tfserving.predict_v1 import SIGNATURE
from tests.adapters.wire.tensors import same, tensors


def parsed(tensor: Tensor, *, by_value: bool) -> Any:
    message = tensorflow.TensorProto()
    predict.encode_tensor(message, tensor, by_value=by_value)
    return tensorflow.TensorProto.FromString(message.SerializeToString())


@settings(max_examples=150, deadline=None)
@given(tensors(), st.booleans())
def test_tensors_survive_encoding_and_decoding(tensor: Tensor, by_value: bool) -> None:
    plain = Tensor(tensor.name, tensor.datatype, tensor.shape, bytes(tensor.data))
    decoded = predict.decode_tensor(tensor.name, parsed(plain, by_value=by_value))
    if by_value and plain.datatype == "FP32":  # a number on its own is a double in between: no NaN but the quiet one
        one, other = (np.frombuffer(each.data, np.float32) for each in (decoded, plain))
        assert np.array_equal(one, other, equal_nan=True)
        decoded.data = plain.data
    assert same(decoded, plain)


def test_a_field_for_each_kind_as_clients_look_for_it() -> None:
    floats = parsed(Tensor("x", "FP32", (3,), struct.pack("<3f", 1, 2.5, -1)), by_value=True)
    assert (list(floats.float_val), floats.tensor_content) == ([1, 2.5, -1], b"")
    halves = parsed(Tensor("x", "FP16", (2,), struct.pack("<2e", 1, 2)), by_value=True)
    assert list(halves.half_val) == [0x3C00, 0x4000]
    for datatype, field, code in [("INT8", "int_val", "b"), ("UINT64", "uint64_val", "Q"), ("BOOL", "bool_val", "?")]:
        message = parsed(Tensor("x", datatype, (2,), struct.pack(f"<2{code}", 1, 0)), by_value=True)
        assert list(getattr(message, field)) == [1, 0]


def test_texts_in_one_piece() -> None:
    long = b"y" * 300
    content = bytes([1, 0, 0xAC, 0x02]) + b"x" + long
    message = tensorflow.TensorProto(dtype=7, tensor_content=content)
    message.tensor_shape.dim.add(size=3)
    assert bytes(predict.decode_tensor("t", message).data) == join_bytes([b"x", b"", long])


WRONG = [b"\x01\x01\x01xx", b"\x80\x80", b"\xff" * 12, b"\x01\x01\x01xxxx", b"\x00\x00"]


@pytest.mark.parametrize("content", WRONG)
def test_texts_that_are_cut_or_too_long_are_refused(content: bytes) -> None:
    message = tensorflow.TensorProto(dtype=7, tensor_content=content)
    message.tensor_shape.dim.add(size=3)
    with pytest.raises(CallerError, match="number of texts"):
        predict.decode_tensor("t", message)


def test_values_that_are_left_out_are_the_last_one_or_nothing() -> None:
    message = tensorflow.TensorProto(dtype=3, int_val=[5, 6])
    message.tensor_shape.dim.add(size=4)
    assert bytes(predict.decode_tensor("x", message).data) == struct.pack("<4i", 5, 6, 6, 6)
    message = tensorflow.TensorProto(dtype=7)
    message.tensor_shape.dim.add(size=2)
    assert bytes(predict.decode_tensor("x", message).data) == join_bytes([b"", b""])
    message = tensorflow.TensorProto(dtype=7, string_val=[b"x" * 1000])
    message.tensor_shape.dim.add(size=100_000)
    with pytest.raises(CallerError, match="send all"):
        predict.decode_tensor("x", message)


def test_every_datatype_has_a_name() -> None:
    for datatype in TENSORFLOW_NAMES:
        assert parsed(Tensor("x", datatype, (0,), b""), by_value=False).dtype


def test_a_request_and_a_response() -> None:
    x = Tensor("x", "INT32", (1,), struct.pack("<i", 7))
    inference = Inference("m", "3", "", {SIGNATURE: "other"}, [x], [RequestedOutput("y")])
    message = tfserving_predict.encode_request(inference, "theirs")
    read = tfserving_predict.decode_request(message)
    assert (read.model_name, read.model_version, read.parameters) == ("theirs", "3", {SIGNATURE: "other"})
    assert same(read.inputs[0], x)
    assert read.outputs == inference.outputs
    inference.model_version = "stable"
    assert tfserving_predict.decode_request(tfserving_predict.encode_request(inference, "m")).model_version == "stable"
    encoded = tfserving_predict.encode_response(Inferred("m", "3", outputs=[x]), "m", "")
    inferred = tfserving_predict.decode_response(encoded, "called")
    assert (inferred.model_name, inferred.model_version) == ("called", "3")
    assert same(inferred.outputs[0], x)
    with pytest.raises(BackendError):
        tfserving_predict.decode_response(b"\xff", "m")


def test_examples_of_json_and_back() -> None:
    body = {"signature_name": "s", "context": {"c": 1}, "examples": [{"f": [1.5, 2], "t": "é", "b": {"b64": "/w=="}}]}
    message = serving.Input()
    assert tfserving_examples.fill_input(message, json.dumps(body).encode()) == "s"
    fields = json.loads(tfserving_examples.body_of(message, "s"))
    assert fields == {**body, "examples": [{"f": [1.5, 2.0], "t": {"b64": "w6k="}, "b": {"b64": "/w=="}}]}
    (example,) = message.example_list_with_context.examples
    kinds = {name: feature.WhichOneof("kind") for name, feature in example.features.feature.items()}
    assert kinds == {"f": "float_list", "t": "bytes_list", "b": "bytes_list"}
    plain = serving.Input()
    tfserving_examples.fill_input(plain, b'{"examples": [{"n": true}, {"n": 3}]}')
    assert json.loads(tfserving_examples.body_of(plain, "")) == {"examples": [{"n": 1}, {"n": 3}]}


@pytest.mark.parametrize("value", [[[1]], {"x": 1}, None, 2**70, ["x", 1], {"b64": "?"}, {"b64": 7}])
def test_features_that_are_none_are_refused(value: Any) -> None:
    with pytest.raises(CallerError, match="feature"):
        tfserving_examples.fill_input(serving.Input(), json.dumps({"examples": [{"a": value}]}).encode())
