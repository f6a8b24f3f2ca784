"""KServe's v1 and TensorFlow Serving's REST from the client's side."""

import json
import math
import struct
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adapters.errors import BackendError, CallerError
from adapters.tensors import Inference, Tensor, join_bytes
from adapters.wire.oip.bodies import ModelMetadata, TensorMetadata
from adapters.wire.tfserving.predict_v1 import decode_predict
from adapters.wire.tfserving.predict_v1_upstream import check_response, decode_answer, encode_request
from tests.adapters.wire.tensors import same

Y = TensorMetadata("y", "FP32", (-1, 2))
Z = TensorMetadata("z", "BYTES", (-1,))


def floats(name: str, shape: tuple[int, ...], *values: float) -> Tensor:
    return Tensor(name, "FP32", shape, struct.pack(f"<{len(values)}f", *values))


def sent(*tensors: Tensor, by_row: bool = False, **parameters: Any) -> Any:
    return json.loads(encode_request(Inference("m", "", "", parameters, list(tensors)), by_row=by_row))


def test_whole_inputs_and_rows() -> None:
    x, t = floats("x", (2, 1), 1, 2.5), Tensor("t", "BYTES", (2,), join_bytes([b"a", b"\xff"]))
    assert sent(x) == {"inputs": {"x": [[1.0], [2.5]]}}
    assert sent(x, t, signature_name="other") == {
        "signature_name": "other",
        "inputs": {"x": [[1.0], [2.5]], "t": [{"b64": "YQ=="}, {"b64": "/w=="}]},
    }
    assert sent(x, by_row=True) == {"instances": [[1.0], [2.5]]}
    rows = [{"x": [1.0], "t": {"b64": "YQ=="}}, {"x": [2.5], "t": {"b64": "/w=="}}]
    assert sent(x, t, by_row=True) == {"instances": rows}


def test_nan_and_infinity_are_encoded_like_pythons() -> None:
    assert encode_request(Inference("m", inputs=[floats("x", (3,), math.nan, math.inf, 1)])) == (
        b'{"inputs": {"x": [NaN, Infinity, 1.0]}}'
    )


def test_inputs_without_rows_are_refused() -> None:
    for tensors in ([floats("x", (), 1)], [floats("x", (1,), 1), floats("y", (2,), 1, 2)]):
        with pytest.raises(CallerError, match="rows"):
            encode_request(Inference("m", inputs=tensors), by_row=True)


ANSWERS: list[tuple[Any, list[TensorMetadata], list[Tensor]]] = [
    ({"predictions": [[1, 2.5]]}, [Y], [floats("y", (1, 2), 1, 2.5)]),
    ({"outputs": [[1.5, None]]}, [Y], [floats("y", (1, 2), 1.5, math.nan)]),
    (b'{"outputs": [[-Infinity, NaN]]}', [Y], [floats("y", (1, 2), -math.inf, math.nan)]),
    ({"predictions": [{"y": [1, 2], "z": "a"}, {"y": [3, 4], "z": {"b64": "/w=="}}]}, [Y, Z],
     [floats("y", (2, 2), 1, 2, 3, 4), Tensor("z", "BYTES", (2,), join_bytes([b"a", b"\xff"]))]),
    ({"outputs": {"z": ["b"], "y": [[1, 2]]}}, [Y, Z],
     [Tensor("z", "BYTES", (1,), join_bytes([b"b"])), floats("y", (1, 2), 1, 2)]),
    ({"predictions": [{"b64": "YQ=="}]}, [Z], [Tensor("z", "BYTES", (1,), join_bytes([b"a"]))]),
    ({"predictions": []}, [Y], [floats("y", (0, 2))]),
    ({"outputs": 7}, [TensorMetadata("n", "INT64", ())], [Tensor("n", "INT64", (), struct.pack("<q", 7))]),
    ({"predictions": [1, 2]}, [], [Tensor("output", "INT64", (2,), struct.pack("<2q", 1, 2))]),
    ({"predictions": [1, 2.5]}, [], [Tensor("output", "FP64", (2,), struct.pack("<2d", 1, 2.5))]),
    ({"predictions": [{"a": True}, {"a": False}]}, [], [Tensor("a", "BOOL", (2,), b"\x01\x00")]),
    ({"explanations": ["because"]}, [], [Tensor("output", "BYTES", (1,), join_bytes([b"because"]))]),
]  # fmt: skip


@pytest.mark.parametrize(("body", "outputs", "tensors"), ANSWERS, ids=range(len(ANSWERS)))
def test_answers(body: Any, outputs: list[TensorMetadata], tensors: list[Tensor]) -> None:
    inferred = decode_answer(body if isinstance(body, bytes) else json.dumps(body).encode(), outputs, "m", "3")
    assert (inferred.model_name, inferred.model_version) == ("m", "3")
    for one, other in zip(inferred.outputs, tensors, strict=True):
        assert same(one, other)


BROKEN: list[Any] = [
    b"", b"<html>", b"[]", b"{", b'{"outputs": [1,', b"\xff", b'{"predictions": [["a"]]}', {"error": "boom"},
    {"predictions": {"y": 1, "z": 2}}, {"predictions": [{"y": [1, 2]}, {"z": 1}]}, {"predictions": [[1, 2], [3]]},
    {"outputs": {"y": [["x", 1]]}}, {"other": 1}, b'{"predictions":' + b"[" * 100_000, {"predictions": [[1e60, 2]]},
    {"predictions": [{"y": [1, 2]}, 7]}, {"predictions": [None, [1, 2]]},
]  # fmt: skip


@pytest.mark.parametrize("body", BROKEN, ids=range(len(BROKEN)))
def test_an_unreadable_answer_is_the_servers_fault(body: Any) -> None:
    with pytest.raises(BackendError):
        decode_answer(body if isinstance(body, bytes) else json.dumps(body).encode(), [Y], "m", "")


def test_an_answer_of_the_same_wire_passes_unchanged() -> None:
    body = b'{ "predictions": [[1.50, "\xc3\xa9", {"any": []}]] }'
    assert check_response(body) is body
    assert check_response(b'{"predictions": [NaN, -Infinity, "NaN"]}') == b'{"predictions":[null,null,"NaN"]}'
    assert json.loads(check_response(b'{"results": [["\\ud83d\\ude00", NaN]]}')) == {"results": [["\U0001f600", None]]}


@pytest.mark.parametrize(
    "body", [b"", b"ok", b"[1]", b'{"error": "in a 200"}', b'{"predictions": ["\xff"]}', b'{"predictions": [1}']
)
def test_an_answer_that_is_none_does_not_go_on(body: bytes) -> None:
    with pytest.raises(BackendError):
        check_response(body)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.lists(st.floats(width=32, allow_nan=False), min_size=2, max_size=2), min_size=1, max_size=4))
def test_requests_survive_encoding_and_decoding(rows: list[list[float]]) -> None:
    x = floats("x", (len(rows), 2), *[value for row in rows for value in row])
    metadata = ModelMetadata("m", [], "", [TensorMetadata("x", "FP32", (-1, 2))], [])
    for by_row in (True, False):
        body = encode_request(Inference("m", inputs=[x]), by_row=by_row)
        (read,) = decode_predict(body, metadata).inputs
        assert same(read, x)
