"""Responses of the Open Inference Protocol: encoded in the requested form, and decoded."""

import json
import math
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.errors import BackendError, CallerError
from adapters.tensors import Inferred, Parameter, Tensor
from adapters.wire.oip import requests as oip
from adapters.wire.oip import responses as oip_responses
from tests.adapters.wire.tensors import WORDS, lists, parameters, same

Y = Tensor("y", "INT32", (2,), b"\x01\0\0\0\x02\0\0\0")
Z = Tensor("z", "FP32", (1,), b"\0\0\x80\x3f")


@st.composite
def inferreds(draw: st.DrawFn, *, text: bool) -> Inferred:
    return Inferred("m", "3", draw(WORDS), draw(parameters()), draw(lists(text=text)))


@given(st.data(), st.booleans())
def test_responses_survive_encoding_and_decoding(data: st.DataObject, in_binary: bool) -> None:
    inferred = data.draw(inferreds(text=not in_binary))
    again = oip_responses.decode_response(*oip_responses.encode_response(inferred, in_binary))
    assert (again.model_name, again.model_version, again.id) == ("m", "3", inferred.id)
    assert dict(again.parameters) == dict(inferred.parameters)
    assert len(again.outputs) == len(inferred.outputs)
    assert all(map(same, again.outputs, inferred.outputs))


def test_json_is_flat_and_names_the_model() -> None:
    body, length = oip_responses.encode_response(Inferred("m", "1", outputs=[Tensor("y", "INT32", (1, 2), Y.data)]))
    assert length is None
    assert json.loads(body) == {
        "model_name": "m", "model_version": "1",
        "outputs": [{"name": "y", "datatype": "INT32", "shape": [1, 2], "data": [1, 2]}],
    }  # fmt: skip


@pytest.mark.parametrize(
    ("request_", "expected"),
    [
        ({}, False),
        ({"parameters": {"binary_data_output": True}}, True),
        ({"parameters": {"binary_data_output": True}, "outputs": [{"name": "y"}]}, True),
        (
            {"outputs": [{"name": "y", "parameters": {"binary_data": True}}, {"name": "z"}]},
            {"y": True, "z": False},
        ),
        (
            {
                "parameters": {"binary_data_output": True},
                "outputs": [{"name": "y", "parameters": {"binary_data": False}}, {"name": "z"}],
            },
            {"y": False, "z": True},
        ),
    ],
)
def test_an_outputs_own_setting_precedes_the_requests(
    request_: dict[str, Any], expected: oip_responses.BinaryOutputs
) -> None:
    inference = oip.decode_request(json.dumps({"inputs": [], **request_}).encode(), None, "m")
    assert oip_responses.binary_outputs(inference) == expected


def test_a_form_that_is_neither_true_nor_false_is_the_callers_mistake() -> None:
    for more in (
        {"parameters": {"binary_data_output": "yes"}},
        {"outputs": [{"name": "a", "parameters": {"binary_data": 1}}]},
    ):
        with pytest.raises(CallerError, match="expected true or false"):
            oip.decode_request(json.dumps({"inputs": [], **more}).encode(), None, "m")


def test_binary_and_json_outputs_in_one_response() -> None:
    body, length = oip_responses.encode_response(Inferred("m", "1", outputs=[Y, Z]), {"z": True})
    assert length is not None
    head = json.loads(body[:length])
    assert head["outputs"][0]["data"] == [1, 2]
    assert head["outputs"][1]["parameters"] == {"binary_data_size": 4}
    assert body[length:] == Z.data


def test_nan_and_infinity_are_null() -> None:
    data = struct.pack("<3d", math.nan, math.inf, 1.5)
    body, _ = oip_responses.encode_response(Inferred("m", outputs=[Tensor("y", "FP64", (3,), data)]))
    assert json.loads(body, parse_constant=pytest.fail)["outputs"][0]["data"] == [None, None, 1.5]


@pytest.mark.parametrize(
    "tensor", [Tensor("y", "BF16", (1,), b"12"), Tensor("y", "BYTES", (1,), b"\x01\0\0\0\xff")], ids=["BF16", "BYTES"]
)
def test_datatypes_without_a_form_in_json_need_binary_data(tensor: Tensor) -> None:
    with pytest.raises(CallerError, match=r"`y` .*`binary_data: true`"):
        oip_responses.encode_response(Inferred("m", outputs=[tensor]))
    body, length = oip_responses.encode_response(Inferred("m", outputs=[tensor]), True)
    assert same(oip_responses.decode_response(body, length).outputs[0], tensor)


def test_an_output_in_shared_memory_has_neither_data_nor_parameters() -> None:
    """Like Triton: its C++ client treats an output with parameters as a binary output, and fails."""
    where: dict[str, Parameter] = {"shared_memory_region": "r", "shared_memory_byte_size": 8}
    body, length = oip_responses.encode_response(Inferred("m", outputs=[Tensor("y", "INT32", (2,), b"", where)]), True)
    assert length is None
    assert json.loads(body)["outputs"] == [{"name": "y", "datatype": "INT32", "shape": [2]}]


def test_an_output_in_shared_memory_needs_no_data() -> None:
    where = {"shared_memory_region": "r", "shared_memory_byte_size": 8}
    output = {"name": "y", "datatype": "INT32", "shape": [2], "parameters": where}
    body = json.dumps({"model_name": "m", "outputs": [output]}).encode()
    assert oip_responses.decode_response(body, None).outputs[0].parameters == where


def test_servers_of_this_family_are_read_with_their_ways() -> None:
    """NaN as Python writes it, null for it, parameters that are objects, null for what is not there."""
    body = (
        b'{"model_name":"m","model_version":null,"id":null,"parameters":{"content_type":"np","headers":{"a":"b"}},'
        b'"outputs":[{"name":"y","shape":[1,3],"datatype":"FP32","parameters":null,"data":[[NaN,null,Infinity]]}]}'
    )
    inferred = oip_responses.decode_response(body, None)
    assert (inferred.model_version, inferred.id, inferred.parameters) == ("", "", {"content_type": "np"})
    assert [math.isnan(value) for value in memoryview(inferred.outputs[0].data).cast("f")] == [True, True, True]


@pytest.mark.parametrize(
    ("body", "length"),
    [
        (b"", None),
        (b"{}", None),
        (b"{}", 9),
        (b"<html>", None),
        (b'{"error":"no"}', None),
        (b'{"outputs":[{"name":"y","shape":[1],"datatype":"FP32"}]}', None),
        (b'{"outputs":[{"name":"y","shape":[1],"datatype":"FP32","parameters":{"binary_data_size":4}}]}', None),
        (b'{"outputs":[{"name":"y","shape":[1],"datatype":"FP31","data":[1]}]}', None),
        (b'{"outputs":[{"name":"y","shape":[2],"datatype":"INT8","data":[1]}]}', None),
        (b"[" * 100_000, None),
    ],
)
def test_an_answer_that_cannot_be_read_is_the_upstreams_fault(body: bytes, length: int | None) -> None:
    with pytest.raises(BackendError):
        oip_responses.decode_response(body, length)


@given(st.binary(max_size=64), st.one_of(st.none(), st.integers(0, 80)))
def test_noise_is_an_answer_or_the_upstreams_fault(noise: bytes, length: int | None) -> None:
    try:
        read = oip_responses.decode_response(noise, length)
    except BackendError:
        return
    assert noise.strip()[:1] == b"{"
    assert isinstance(read, Inferred)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b'{"error":"no such model"}', "no such model"),
        (b'{"error":{"message":"bad","code":400}}', "bad"),
        (b'{"code":404,"type":"X","message":"gone"}', "gone"),
        (b'{"detail":[{"loc":["body"]}]}', "[{'loc': ['body']}]"),
        (b'{"error":""}', None),
        (b"{}", None),
        (b"plain text", None),
        (b"", None),
    ],
)
def test_errors_in_the_shapes_of_this_family(body: bytes, message: str | None) -> None:
    assert oip_responses.error_of(body) == message


@given(st.binary(max_size=40))
def test_noise_is_not_decoded_as_an_error(noise: bytes) -> None:
    assert oip_responses.error_of(noise) is None or noise.lstrip().startswith(b"{")


def test_an_error_is_written_as_the_protocol_has_it() -> None:
    assert json.loads(oip_responses.encode_error('a "b"')) == {"error": 'a "b"'}
