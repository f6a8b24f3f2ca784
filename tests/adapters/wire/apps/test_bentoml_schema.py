"""BentoML's schema, calls and refusals, as bytes."""

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.errors import BackendError, CallerError
from adapters.tensors import Inference, Tensor, join_bytes
from adapters.wire.apps import bentoml_calls
from adapters.wire.apps.bentoml_schema import Api, decode_schema
from adapters.wire.oip.bodies import TensorMetadata


def api(given_: dict[str, Any], gives: dict[str, Any] | None = None) -> Api:
    """One method, whose schema is written as the server writes it."""
    route = {"name": "m", "route": "/a/m", "input": given_, "output": gives or {"type": "string"}, "batchable": False}
    return decode_schema(json.dumps({"name": "S", "type": "service", "routes": [route]}).encode())["m"]


def taking(**properties: Any) -> Api:
    return api({"type": "object", "properties": properties, "required": list(properties)})


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ({"type": "tensor", "dtype": "float16", "shape": [-1, 3]}, ("FP16", (-1, 3))),
        ({"type": "tensor", "format": "torch-tensor", "dtype": "long"}, ("INT64", (-1, -1))),
        ({"type": "tensor", "dtype": "complex64"}, ("FP64", (-1, -1))),
        ({"type": "tensor"}, ("FP64", (-1, -1))),
        ({"type": "integer"}, ("INT64", (1,))),
        ({"type": "array", "items": {"type": "array", "items": {"type": "number"}}}, ("FP64", (-1, -1))),
        ({"type": "array", "items": {"type": "string"}}, ("BYTES", (-1,))),
        ({"type": "array", "items": {"type": "object"}}, ("BYTES", (1,))),
        ({"type": "array", "items": {"type": "file"}}, ("BYTES", (-1,))),
        ({"type": "object", "additionalProperties": True}, ("BYTES", (1,))),
        ({"title": "Anything"}, ("FP64", (-1, -1))),
    ],
)
def test_arguments_as_tensors(schema: dict[str, Any], expected: tuple[str, tuple[int, ...]]) -> None:
    (tensor,) = taking(x=schema).metadata().inputs
    assert (tensor.name, tensor.datatype, tensor.shape) == ("x", *expected)


def test_the_configuration_completes_a_schema() -> None:
    method = api(
        {
            "type": "object",
            "properties": {"x": {"type": "tensor"}, "y": {"type": "tensor", "dtype": "int8"}, "n": {"type": "string"}},
        },
        {"type": "tensor"},
    )
    floats = [TensorMetadata(name, "FP32", (-1, 4)) for name in ("x", "y", "n", "other")]
    completed = method.completed(floats, [TensorMetadata("scores", "FP32", (-1,))])
    assert [(one.name, one.datatype, one.shape) for one in completed.metadata().inputs] == [
        ("x", "FP32", (-1, 4)),
        ("y", "INT8", (-1, 4)),
        ("n", "BYTES", (1,)),
    ]
    assert [(one.name, one.datatype) for one in completed.metadata().outputs] == [("scores", "FP32")]
    (tensor,) = bentoml_calls.decode_answer(completed, b"[1, 2]", "application/json")
    assert (tensor.name, tensor.datatype, tensor.shape) == ("scores", "FP32", (2,))
    assert method.completed([], []) == method


def test_methods_go_by_name_and_by_route() -> None:
    methods = decode_schema(b'{"routes": [{"name": "m", "route": "/a/m"}]}')
    assert methods["m"] is methods["a/m"]


@pytest.mark.parametrize(
    "body",
    [
        b"", b"<html>", b"[]", b"{}", b'{"routes": [{}]}', b"\xff", b'{"routes": ' + b"[" * 5000,
        b'{"routes": [{"name": "m", "route": "/", "input": {"type": "object", "properties": {"x": 3}}}]}',
        b'{"routes": [{"name": "m", "route": "/", "input": {"properties": {"x": {"type": "tensor", "shape": 3}}}}]}',
        b'{"routes": [{"name": "m", "route": "/", "input": {"properties": {"x": {"type": "array", "items": 3}}}}]}',
    ],
)  # fmt: skip
def test_schemas_that_are_none(body: bytes) -> None:
    with pytest.raises(BackendError, match="schema cannot be decoded"):
        decode_schema(body)


@given(st.lists(st.binary(max_size=200), min_size=1, max_size=3))
def test_files_are_parts_of_a_body_that_can_be_taken_apart(files: list[bytes]) -> None:
    method = taking(pages={"type": "array", "items": {"type": "file"}}, note={"type": "string"})
    inputs = [
        Tensor("pages", "BYTES", (len(files),), join_bytes(files)),
        Tensor("note", "BYTES", (1,), join_bytes([b"a"])),
    ]
    body, content_type = bentoml_calls.encode_call(method, Inference("m", inputs=inputs))
    boundary = content_type.partition("boundary=")[2].encode()
    parts = body.split(b"--" + boundary)
    assert parts[-1] == b"--\r\n"
    contents = [part.partition(b"\r\n\r\n")[2].removesuffix(b"\r\n") for part in parts[1:-1]]
    assert contents == [*files, b'"a"']


def test_a_boundary_in_a_file_is_no_boundary() -> None:
    method = taking(page={"type": "file"})

    def call(file: bytes) -> tuple[bytes, str]:
        return bentoml_calls.encode_call(
            method, Inference("m", inputs=[Tensor("page", "BYTES", (1,), join_bytes([file]))])
        )

    _, content_type = call(b"first")
    boundary = content_type.partition("boundary=")[2]
    _, other = call(f"--{boundary}--".encode())
    assert boundary not in other


@pytest.mark.parametrize("name", ['a"; filename="b', "a\r\nb: c"])
def test_names_cannot_end_a_header(name: str) -> None:
    method = taking(**{"page": {"type": "file"}, name: {"type": "integer"}})
    inputs = [
        Tensor("page", "BYTES", (1,), join_bytes([b"x"])),
        Tensor(name, "INT64", (1,), bytes(8)),
    ]
    body, _ = bentoml_calls.encode_call(method, Inference("m", inputs=inputs))
    assert b"\r\nb: c" not in body
    assert b'name="a"; filename="b"' not in body


@pytest.mark.parametrize(
    ("gives", "body", "content_type", "expected"),
    [
        ({"type": "string"}, b"hello", "text/plain", {"output": "BYTES"}),
        ({"type": "string"}, b"\x89PNG", "image/png", {"output": "BYTES"}),
        ({"type": "tensor", "dtype": "int32"}, b"[[1, 2]]", "application/json", {"output": "INT32"}),
        ({"type": "object"}, b'{"a": 1, "b": [2.5]}', "application/json", {"a": "INT64", "b": "FP64"}),
        ({"type": "dataframe"}, b'[{"a": 1, "b": "x"}, {"a": 2}]', "application/json", {"a": "INT64", "b": "BYTES"}),
        ({"type": "dataframe", "orient": "columns"}, b'{"a": [1, 2]}', "application/json", {"a": "INT64"}),
    ],
)
def test_answers(gives: dict[str, Any], body: bytes, content_type: str, expected: dict[str, str]) -> None:
    method = api({}, gives)
    tensors = bentoml_calls.decode_answer(method, body, content_type)
    assert {tensor.name: tensor.datatype for tensor in tensors} == expected


@pytest.mark.parametrize("body", [b"", b"nan", b"[1", b"\xff", b"[1, 2]", b'{"a": "text"}', b"[" * 5000])
def test_answers_that_are_none(body: bytes) -> None:
    method = api({}, {"type": "object", "properties": {"a": {"type": "integer"}}})
    with pytest.raises(BackendError):
        bentoml_calls.decode_answer(method, body, "application/json")


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b'[{"error": "no cake"}]', "no cake"),
        (b'{"error": "Too many requests"}', "Too many requests"),
        (b'{"error": "1 error", "detail": [{"loc": ["a", 0], "msg": "is odd"}]}', "a.0: is odd"),
        (b'{"error": "1 error", "detail": "?"}', "1 error"),
        (b"Not Found", None),
        (b'{"error": 3}', None),
        (b"[" * 5000, None),
    ],
)
def test_refusals(body: bytes, expected: str | None) -> None:
    assert bentoml_calls.error_of(body) == expected


def test_invalid_utf8_is_refused_as_json() -> None:
    method = taking(x={"type": "string"})
    with pytest.raises(CallerError):
        bentoml_calls.encode_call(method, Inference("m", inputs=[Tensor("x", "BYTES", (1,), join_bytes([b"\xff"]))]))


@pytest.mark.parametrize(
    ("schema", "tensor", "expected"),
    [
        ({"type": "string"}, Tensor("input", "BYTES", (1,), join_bytes([b"hi"])), (b"hi", "text/plain")),
        ({"type": "file"}, Tensor("input", "BYTES", (1,), join_bytes([b"\xff"])), (b"\xff", bentoml_calls.OCTETS)),
        ({"type": "integer"}, Tensor("input", "INT64", (1,), b"\7" + bytes(7)), (b"7", bentoml_calls.JSON)),
    ],
)
def test_the_only_argument_is_the_body(schema: dict[str, Any], tensor: Tensor, expected: tuple[bytes, str]) -> None:
    method = api({**schema, "root_input": True})
    (field,) = method.inputs
    assert bentoml_calls.encode_call(method, Inference("m", inputs=[replace(tensor, name=field)])) == expected
