import json
import math
import struct
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adapters.errors import BackendError, CallerError
from adapters.tensors import Inferred, Tensor, join_bytes
from adapters.wire.oip.bodies import ModelMetadata, TensorMetadata
from adapters.wire.tfserving.predict_v1 import decode_examples, decode_predict
from adapters.wire.tfserving.predict_v1_responses import encode_classes, encode_metadata, encode_predict, encode_values


def model(*inputs: tuple[str, str, tuple[int, ...]]) -> ModelMetadata:
    return ModelMetadata("m", ["1"], "onnx", [TensorMetadata(*one) for one in inputs], [])


X = model(("x", "FP32", (-1, 2)))
TWO = model(("a", "INT32", (-1, 1)), ("b", "BYTES", (-1, 1)))


def floats(*values: float) -> bytes:
    return struct.pack(f"<{len(values)}f", *values)


def predict(body: Any, metadata: ModelMetadata = X) -> list[Tensor]:
    return decode_predict(body if isinstance(body, bytes) else json.dumps(body).encode(), metadata).inputs


def test_rows_of_the_only_input() -> None:
    decoded = decode_predict(b'{"instances": [[1, 2], [3.5, 4]]}', X)
    assert decoded.by_row
    assert decoded.inputs == [Tensor("x", "FP32", (2, 2), floats(1, 2, 3.5, 4))]


def test_rows_with_named_inputs() -> None:
    a, b = predict({"instances": [{"a": 1, "b": "x"}, {"a": 2, "b": {"b64": "/w=="}}]}, TWO)
    assert a == Tensor("a", "INT32", (2, 1), struct.pack("<2i", 1, 2))
    assert b == Tensor("b", "BYTES", (2, 1), join_bytes([b"x", b"\xff"]))


def test_whole_inputs() -> None:
    decoded = decode_predict(b'{"inputs": {"x": [[1, 2]]}}', X)
    assert not decoded.by_row
    assert decoded.inputs == [Tensor("x", "FP32", (1, 2), floats(1, 2))]
    assert predict({"inputs": [[1, 2]]}) == decoded.inputs  # the only one needs no name


def test_one_row_of_bytes_is_not_an_object_of_inputs() -> None:
    metadata = model(("image", "BYTES", (-1,)))
    assert predict({"instances": [{"b64": "aGk="}]}, metadata) == [Tensor("image", "BYTES", (1,), join_bytes([b"hi"]))]
    assert predict({"inputs": {"b64": "aGk="}}, metadata) == [Tensor("image", "BYTES", (), join_bytes([b"hi"]))]


def test_nan_and_infinity_are_decoded() -> None:
    (x,) = predict(b'{"instances": [[NaN, Infinity], [-Infinity, 1e3]]}')
    values = struct.unpack("<4f", x.data)
    assert math.isnan(values[0])
    assert values[1:] == (math.inf, -math.inf, 1000.0)


def test_a_dimension_of_one_may_be_missing_and_a_batch_too_many() -> None:
    assert predict({"instances": [1, 2, 3]}, model(("x", "INT64", (-1, 1))))[0].shape == (3, 1)
    assert predict({"instances": [[1, 2, 3]]}, model(("x", "INT64", (3,))))[0].shape == (3,)


def test_fields_for_the_model_itself_are_parameters() -> None:
    body = {"inputs": {"x": [[1, 2]]}, "signature_name": "other", "parameters": {"k": 1, "nested": {}}}
    assert decode_predict(json.dumps(body).encode(), X).parameters == {"k": 1, "signature_name": "other"}
    assert decode_predict(b'{"inputs":{"x":[[1,2]]},"signature_name":"serving_default"}', X).parameters == {}


WRONG: list[tuple[Any, ModelMetadata, str]] = [
    (b"{", X, "not valid JSON"),
    (b"[" * 100_000, X, "nested too deeply|not valid JSON"),
    (b"[]", X, "must be a JSON object"),
    ({}, X, "either `instances`"),
    ({"instances": [[1, 2]], "inputs": [[1, 2]]}, X, "either `instances`"),
    ({"instances": []}, X, "one row or more"),
    ({"instances": {"x": 1}}, X, "one row or more"),
    ({"instances": [[1, 2], [3]]}, X, "ragged"),
    ({"instances": [[1, 2], 3]}, X, "ragged"),
    ({"instances": [[1, [2]]]}, X, "ragged"),
    ({"instances": [["1", 2]]}, X, 'takes FP32, and has "1"'),
    ({"instances": [[True, 2]]}, X, "takes FP32, and has true"),
    ({"instances": [[None, 2]]}, X, "takes FP32, and has null"),
    ({"instances": [{"y": [1, 2]}]}, X, "no input `y`"),
    ({"instances": [{"a": 1}, {"b": "x"}]}, TWO, "the rows differ"),
    ({"instances": [{"a": 1}, 2]}, TWO, "the rows differ"),
    ({"instances": [1]}, TWO, "several inputs"),
    ({"instances": [{"a": 2**31}]}, TWO, "does not fit into INT32"),
    ({"instances": [{"a": 1.5}]}, TWO, "takes INT32, and has 1.5"),
    ({"instances": [{"b": 5}]}, TWO, "takes texts, or bytes"),
    ({"instances": [{"b": {"b64": "%"}}]}, TWO, "cannot be read"),
    ({"instances": [1]}, model(("x", "BF16", (-1,))), "BF16, which has no form in JSON"),
    (b'{"instances":' + b"[" * 40 + b"1" + b"]" * 40 + b"}", X, "nested deeper than 32"),
    ({"inputs": {"x": [[1, 2]]}, "parameters": 5}, X, "`parameters` must be"),
]


@pytest.mark.parametrize(("body", "metadata", "words"), WRONG, ids=range(len(WRONG)))
def test_the_error_names_the_mistake(body: Any, metadata: ModelMetadata, words: str) -> None:
    with pytest.raises(CallerError, match=words):
        predict(body, metadata)


@given(
    st.binary(max_size=60)
    | st.recursive(st.none() | st.integers() | st.text(max_size=3), st.lists).map(
        lambda value: json.dumps({"instances": value}).encode()
    )
)
@settings(max_examples=200)
def test_noise_is_refused_and_nothing_else(body: bytes) -> None:
    for metadata in (X, TWO):
        with suppress(CallerError):
            decode_predict(body, metadata)


def test_examples_have_the_features_of_their_context() -> None:
    body = json.dumps({"context": {"a": 5}, "examples": [{"b": "x"}, {"b": "y", "a": 6}]}).encode()
    a, b = decode_examples(body, TWO).inputs
    assert sorted([a.name, b.name]) == ["a", "b"]
    assert {a.name: a.data, b.name: b.data}["a"] == struct.pack("<2i", 5, 6)


@pytest.mark.parametrize("body", [b"{}", b'{"examples":[]}', b'{"examples":[1]}', b'{"examples":[{}],"context":1}'])
def test_examples_that_are_none(body: bytes) -> None:
    with pytest.raises(CallerError, match="examples"):
        decode_examples(body, TWO)


# ── answers ───────────────────────────────────────────────────────────────────────────────────────────────


def answered(*outputs: Tensor) -> Inferred:
    return Inferred("m", "1", "", {}, list(outputs))


Y = Tensor("y", "FP32", (2, 2), floats(1, 2, 3, math.nan))
LABEL = Tensor("label", "BYTES", (2,), join_bytes([b"cat", b"dog"]))


def parsed(body: bytes) -> Any:
    return json.loads(body)


def test_a_single_output_has_no_name() -> None:
    assert parsed(encode_predict(answered(Y), by_row=True)) == {"predictions": [[1, 2], [3, None]]}
    assert parsed(encode_predict(answered(Y), by_row=False)) == {"outputs": [[1, 2], [3, None]]}


def test_several_outputs_have_names() -> None:
    rows = [{"y": [1, 2], "label": "cat"}, {"y": [3, None], "label": "dog"}]
    assert parsed(encode_predict(answered(Y, LABEL), by_row=True)) == {"predictions": rows}
    whole = {"y": [[1, 2], [3, None]], "label": ["cat", "dog"]}
    assert parsed(encode_predict(answered(Y, LABEL), by_row=False)) == {"outputs": whole}


def test_bytes_are_encoded_as_bytes() -> None:
    for name, data in (("png_bytes", b"ok"), ("png", b"\xff")):
        output = Tensor(name, "BYTES", (1,), join_bytes([data]))
        (row,) = parsed(encode_predict(answered(output), by_row=True))["predictions"]
        assert set(row) == {"b64"}


def test_outputs_without_rows_are_refused_by_row() -> None:
    with pytest.raises(BackendError, match="`inputs`"):
        encode_predict(answered(Y, Tensor("mean", "FP32", (1,), floats(1))), by_row=True)
    scalar = Tensor("mean", "FP32", (), floats(1))
    assert parsed(encode_predict(answered(scalar), by_row=True)) == {"predictions": [1]}


def test_an_empty_batch() -> None:
    empty = Tensor("y", "FP32", (0, 3), b"")
    assert parsed(encode_predict(answered(empty), by_row=False)) == {"outputs": []}
    assert parsed(encode_predict(answered(Tensor("y", "FP32", (2, 0), b"")), by_row=True)) == {"predictions": [[], []]}


def test_classes() -> None:
    extension = Tensor("p", "BYTES", (1, 2), join_bytes([b"0.9:1:dog", b"0.1:0:cat"]))
    assert parsed(encode_classes(answered(extension))) == {"results": [[["cat", 0.1], ["dog", 0.9]]]}
    plain = Tensor("p", "FP32", (1, 2), floats(0.25, 0.75))
    assert parsed(encode_classes(answered(plain))) == {"results": [[["0", 0.25], ["1", 0.75]]]}
    classes = Tensor("classes", "BYTES", (1, 2), join_bytes([b"a", b"b"]))
    scores = Tensor("scores", "FP32", (1, 2), floats(0.5, 0.5))
    assert parsed(encode_classes(answered(classes, scores))) == {"results": [[["a", 0.5], ["b", 0.5]]]}
    for wrong in (answered(plain, plain), answered(Tensor("p", "BYTES", (1,), join_bytes([b"cat"])))):
        with pytest.raises(CallerError, match="does not classify"):
            encode_classes(wrong)


def test_values() -> None:
    assert parsed(encode_values(answered(Tensor("v", "FP32", (2, 1), floats(1, 2))))) == {"results": [1, 2]}
    with pytest.raises(CallerError, match="no single value"):
        encode_values(answered(Y))


def test_metadata() -> None:
    body = parsed(encode_metadata("m", "3", X))
    assert body["model_spec"] == {"name": "m", "signature_name": "", "version": "3"}
    signature = body["metadata"]["signature_def"]["signature_def"]["serving_default"]
    dims = [{"size": "-1", "name": ""}, {"size": "2", "name": ""}]
    shape = {"dim": dims, "unknown_rank": False}
    assert signature["inputs"]["x"] == {"dtype": "DT_FLOAT", "tensor_shape": shape, "name": "x:0"}


@given(
    st.lists(st.lists(st.integers(-(2**31), 2**31 - 1), min_size=3, max_size=3), min_size=1, max_size=5),
)
@settings(max_examples=50)
def test_rows_survive_decoding_and_encoding(rows: list[list[int]]) -> None:
    (tensor,) = predict({"instances": rows}, model(("x", "INT32", (-1, 3))))
    assert parsed(encode_predict(answered(tensor), by_row=True)) == {"predictions": rows}
