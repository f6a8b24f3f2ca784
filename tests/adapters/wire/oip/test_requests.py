"""Requests of the Open Inference Protocol: read, written, refused."""

import json
import random
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.errors import CallerError
from adapters.tensors import Inference, RequestedOutput, Tensor, element_count
from adapters.wire.oip import requests
from adapters.wire.oip import requests as oip
from tests.adapters.wire.tensors import NAMES, NUMPY, WORDS, array, lists, parameters, same, tensors


def body(**changes: Any) -> bytes:
    """A right request with one input, changed."""
    tensor = {"name": "x", "datatype": "INT32", "shape": [2], "data": [1, 2]} | changes
    return json.dumps({"inputs": [{k: v for k, v in tensor.items() if v is not None}]}).encode()


def binary(head: dict[str, Any], rest: bytes) -> tuple[bytes, int]:
    encoded = json.dumps(head).encode()
    return encoded + rest, len(encoded)


def one(tensor: dict[str, Any]) -> dict[str, Any]:
    return {"inputs": [{"name": "x", "datatype": "INT32", "shape": [2], **tensor}]}


@st.composite
def inferences(draw: st.DrawFn, *, text: bool) -> Inference:
    outputs = draw(st.lists(NAMES, max_size=2, unique=True))
    return Inference(
        "m", "3", draw(WORDS), draw(parameters()), draw(lists(text=text)), [RequestedOutput(name) for name in outputs]
    )  # fmt: skip


@given(st.data(), st.booleans())
def test_requests_survive_encoding_and_decoding(data: st.DataObject, in_binary: bool) -> None:
    inference = data.draw(inferences(text=not in_binary))
    body, length = oip.encode_request(inference, binary=in_binary)
    again = oip.decode_request(body, length, "m", "3")
    assert again.id == inference.id
    assert {**again.parameters, "binary_data_output": 0} == {**inference.parameters, "binary_data_output": 0}
    assert len(again.inputs) == len(inference.inputs)
    assert all(map(same, again.inputs, inference.inputs))
    assert [output.name for output in again.outputs] == [output.name for output in inference.outputs]
    assert all(output.parameters == {"binary_data": in_binary} for output in again.outputs)


@given(tensors(text=True).filter(lambda tensor: tensor.datatype != "BYTES"))
def test_numbers_equal_numpys_flat_or_nested(tensor: Tensor) -> None:
    values = array(tensor)
    for data in (values.ravel().tolist(), values.tolist() if tensor.shape else [values.item()]):
        read = oip.decode_request(
            body(datatype=tensor.datatype, shape=tensor.shape, data=data), None, "m"
        ).inputs[0]  # fmt: skip
        assert read.shape == tensor.shape
        assert np.array_equal(array(read), values)


@pytest.mark.parametrize("datatype", [name for name in NUMPY if "INT" in name])
def test_the_bounds_of_integers(datatype: str) -> None:
    bounds = np.iinfo(NUMPY[datatype])
    edges = [int(bounds.min), int(bounds.max)]
    read = oip.decode_request(body(datatype=datatype, data=edges), None, "m").inputs[0]
    assert array(read).tolist() == edges
    for wrong in (bounds.min - 1, bounds.max + 1, 2**64, -(2**63) - 1, 10**30):
        with pytest.raises(CallerError, match=f"`x`.*{datatype}"):
            oip.decode_request(body(datatype=datatype, data=[1, int(wrong)]), None, "m")


@pytest.mark.parametrize(
    ("datatype", "data"),
    [
        ("INT32", [0.5, 1]),
        ("INT32", [True, 1]),
        ("INT32", ["1", 1]),
        ("INT32", [None, 1]),
        ("UINT8", [-1, 1]),
        ("BOOL", [2, 0]),
        ("BOOL", ["true", False]),
        ("FP32", [1e39, 0]),
        ("FP16", [65520, 0]),
        ("FP32", [True, 0]),
        ("FP32", ["nan", 0]),
        ("BYTES", [1, 2]),
        ("BYTES", "ab"),
        ("INT32", {"0": 1}),
        ("INT32", 3),
        ("BYTES", ["\ud800", ""]),
    ],
)
def test_elements_of_another_kind_are_refused(datatype: str, data: Any) -> None:
    with pytest.raises(CallerError, match="x") as caught:
        oip.decode_request(body(datatype=datatype, data=data), None, "m")
    assert caught.value.code in ("invalid_request", "invalid_json")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"data": [1, 2, 3]}, r"`x` has 3 elements in `data`, and 2 in its shape \[2\]"),
        ({"data": []}, "`x` has 0 elements"),
        ({"data": [[1], [2, 3]]}, "`x` is ragged"),
        ({"data": [[1], 2]}, "not nested evenly"),
        ({"data": [[1, 2, 3], [4, 5, 6]], "shape": [3, 2]}, r"nested as \[2, 3\], and its shape is \[3, 2\]"),
        ({"data": None}, "`x` has no data"),
        ({"data": None, "parameters": {"a": 1}}, "`x` has no data"),
        ({"shape": [-1]}, "shape"),
        ({"shape": [2**63]}, "shape"),
        ({"shape": [0, 2**31 - 1, 2**31 - 1], "data": []}, "too large"),
        ({"shape": [1] * 33, "data": [1]}, "more than 32 dimensions"),
        ({"shape": 2}, "shape"),
        ({"shape": None}, "shape"),
        ({"name": None}, "name"),
        ({"name": 1}, "name"),
        ({"datatype": "INT128"}, "unknown datatype `INT128`"),
        ({"datatype": None}, "datatype"),
        ({"datatype": "BF16"}, "BF16 has no form in JSON. Send `x` with `binary_data_size`"),
        ({"parameters": {"a": {}}}, "parameters"),
        ({"parameters": []}, "parameters"),
        ({"parameters": {"binary_data_size": 8}}, "`x` has both"),
        ({"parameters": {"binary_data_size": 8}, "data": None}, "8 bytes after the JSON, and 0 are left"),
        ({"parameters": {"shared_memory_region": "r"}}, "shared memory and has `data` too"),
        ({"data": json.loads("[" * 101 + "1" + "]" * 101)}, "nested deeper than 100"),
    ],
)
def test_the_error_of_a_wrong_request_names_the_change(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(CallerError, match=words):
        oip.decode_request(body(**changes), None, "m")


@pytest.mark.parametrize(
    ("text", "code"),
    [
        (b"", "invalid_json"),
        (b"{", "invalid_json"),
        (b'{"inputs": [NaN]}', "invalid_json"),
        (b'{"inputs":[{"name":"x","datatype":"FP32","shape":[1],"data":[NaN]}]}', "invalid_json"),
        (b'{"inputs":[{"name":"x","datatype":"FP64","shape":[1],"data":[1e400]}]}', "invalid_request"),
        (b'{"inputs":[{"name":"\xff","datatype":"FP64","shape":[1],"data":[1]}]}', "invalid_json"),
        (b"[]", "invalid_request"),
        (b"{}", "invalid_request"),
        (b'{"inputs": {}}', "invalid_request"),
        (b'{"inputs": [], "id": 3}', "invalid_request"),
        (b'{"inputs": [], "outputs": ["y"]}', "invalid_request"),
        (b'{"inputs":[{"name":"x","data":' + b"[" * 100_000, "invalid_json"),
    ],
)
def test_bodies_that_are_no_request(text: bytes, code: str) -> None:
    with pytest.raises(CallerError) as caught:
        oip.decode_request(text, None, "m")
    assert caught.value.code == code


def test_names_that_are_given_twice_are_refused() -> None:
    tensor = {"name": "x", "datatype": "INT32", "shape": [1], "data": [1]}
    with pytest.raises(CallerError, match="Two inputs"):
        oip.decode_request(json.dumps({"inputs": [tensor, tensor]}).encode(), None, "m")
    with pytest.raises(CallerError, match="Two requested outputs"):
        oip.decode_request(json.dumps({"inputs": [], "outputs": [{"name": "y"}] * 2}).encode(), None, "m")


@pytest.mark.parametrize(
    ("head", "rest", "words"),
    [
        (one({"parameters": {"binary_data_size": 8}}), b"1234567", "8 bytes after the JSON, and 7 are left"),
        (one({"parameters": {"binary_data_size": 8}}), b"123456789", "1 bytes after the data of its last input"),
        (one({"parameters": {"binary_data_size": 4}}), b"1234", r"4 bytes, and INT32 of shape \[2\] has 8"),
        (one({"parameters": {"binary_data_size": -1}}), b"", "not a number of bytes"),
        (one({"parameters": {"binary_data_size": 2**63}}), b"", "9223372036854775808 bytes after the JSON"),
        (one({"parameters": {"binary_data_size": True}}), b"1", "not a number of bytes"),
        (one({"parameters": {"binary_data_size": 8.0}}), b"12345678", "not a number of bytes"),
        (one({"parameters": {"binary_data_size": 8}, "datatype": "INT31"}), b"12345678", "unknown datatype"),
        (one({"data": [1, 2]}), b"12", "2 bytes after"),
        ({"inputs": []}, b"1", "1 bytes after"),
    ],
)
def test_binary_sizes_that_lie(head: dict[str, Any], rest: bytes, words: str) -> None:
    with pytest.raises(CallerError, match=words):
        oip.decode_request(*binary(head, rest), "m")


def test_inputs_that_overlap_leave_too_little_for_the_last() -> None:
    tensor = {"datatype": "UINT8", "shape": [8], "parameters": {"binary_data_size": 8}}
    head = {"inputs": [{"name": "x", **tensor}, {"name": "y", **tensor}]}
    with pytest.raises(CallerError, match="`y` declares 8 bytes after the JSON, and 4 are left"):
        oip.decode_request(*binary(head, b"123456789012"), "m")


def test_binary_data_is_a_view_of_the_body() -> None:
    text, length = binary(one({"parameters": {"binary_data_size": 8, "mine": 1}}), b"12345678")
    tensor = oip.decode_request(text, length, "m").inputs[0]
    assert isinstance(tensor.data, memoryview)
    assert tensor.data.obj is text
    assert tensor.parameters == {"mine": 1}


def test_binary_and_json_inputs_in_one_request() -> None:
    head = {
        "inputs": [
            {"name": "a", "datatype": "BYTES", "shape": [1], "parameters": {"binary_data_size": 5}},
            {"name": "b", "datatype": "BYTES", "shape": [1], "data": ["é"]},
            {"name": "c", "datatype": "BF16", "shape": [1], "parameters": {"binary_data_size": 2}},
        ]
    }
    inference = oip.decode_request(*binary(head, b"\x01\0\0\0z\x80\x3f"), "m")
    assert [bytes(tensor.data) for tensor in inference.inputs] == [b"\x01\0\0\0z", b"\x02\0\0\0\xc3\xa9", b"\x80\x3f"]


def test_an_input_in_shared_memory_has_no_data_of_its_own() -> None:
    where = {"shared_memory_region": "r", "shared_memory_byte_size": 8, "shared_memory_offset": 4}
    tensor = oip.decode_request(body(data=None, parameters=where), None, "m").inputs[0]
    assert (tensor.data, tensor.parameters) == (b"", where)
    again = oip.decode_request(*oip.encode_request(Inference("m", inputs=[tensor])), "m").inputs[0]
    assert same(again, tensor)


@pytest.mark.parametrize("value", ["-1", "+1", "1.0", "0x1", "", " 1", "٣", "9" * 20])
def test_a_header_that_is_no_length(value: str) -> None:
    with pytest.raises(CallerError, match="not a number of bytes"):
        oip.header_length(value)


def test_a_header_of_more_than_the_body() -> None:
    assert oip.header_length(None) is None
    assert oip.header_length("12") == 12
    with pytest.raises(CallerError, match="is 3, and the whole body has 2 bytes"):
        oip.decode_request(b"{}", 3, "m")


@pytest.mark.parametrize(
    ("data", "datatype", "dims", "batched", "shape"),
    [
        (b"12345678", "INT32", (2,), False, (2,)),
        (b"12345678", "INT32", (-1,), True, (1, 2)),
        (b"12345678", "INT16", (-1, 2), True, (1, 2, 2)),
        (b"abc", "BYTES", (1,), True, (1, 1)),
        (b"", "FP32", (-1,), False, (0,)),
    ],
)
def test_a_raw_request_has_its_models_input(
    data: bytes, datatype: str, dims: tuple[int, ...], batched: bool, shape: tuple[int, ...]
) -> None:
    raw = oip.decode_request(data, 0, "m")
    whole = requests.complete(raw, "x", datatype, dims, batched=batched)
    expected = b"\x03\0\0\0abc" if datatype == "BYTES" else data
    assert same(whole.inputs[0], Tensor("x", datatype, shape, expected))
    assert whole.parameters == {"binary_data_output": True}


@pytest.mark.parametrize(
    ("data", "datatype", "dims"),
    [
        (b"1234567", "INT32", (2,)),
        (b"1234567", "INT32", (-1,)),
        (b"1234", "INT32", (-1, -1)),
        (b"1", "BYTES", (2,)),
        (b"1", "BYTES", (-1,)),
        (b"1", "INT32", (-1, 0)),
        (b"1", "STRING", (1,)),
    ],
)
def test_a_raw_request_that_is_not_the_models_input(data: bytes, datatype: str, dims: tuple[int, ...]) -> None:
    with pytest.raises(CallerError, match="`x`"):
        requests.complete(oip.decode_request(data, 0, "m"), "x", datatype, dims, batched=False)


def test_datatypes_without_a_form_in_json_are_not_encoded_as_json() -> None:
    with pytest.raises(CallerError, match="BF16 has no form in JSON"):
        oip.encode_request(Inference("m", inputs=[Tensor("x", "BF16", (1,), b"12")]), binary=False)


@given(
    st.sampled_from([datatype for datatype in NUMPY if "INT" in datatype]),
    st.lists(st.tuples(st.integers(-(2**53), 2**53), st.booleans()), min_size=1, max_size=5),
    st.integers(0, 100),
)
def test_whole_numbers_may_be_written_as_floats_in_up_to_a_hundred_lists(
    datatype: str, numbers: list[tuple[int, bool]], depth: int
) -> None:
    bounds = np.iinfo(NUMPY[datatype])
    values = [max(int(bounds.min), min(int(bounds.max), number)) for number, _ in numbers]
    floats = [as_float and abs(value) <= 2**53 for value, (_, as_float) in zip(values, numbers, strict=True)]
    written = [f"{value}.0" if whole else f"{value}" for value, whole in zip(values, floats, strict=True)]
    data = "[" * max(depth, 1) + ",".join(written) + "]" * max(depth, 1)
    head = f'{{"inputs":[{{"name":"x","datatype":"{datatype}","shape":[{len(values)}],"data":{data}}}]}}'
    (tensor,) = oip.decode_request(head.encode(), None, "m").inputs
    assert np.frombuffer(tensor.data, NUMPY[datatype]).tolist() == values


@pytest.mark.parametrize(
    ("datatype", "data"),
    [
        ("INT32", "[1.5,1.0]"),
        ("INT32", "[[1.0],[0.5]]"),
        ("UINT8", "[256.0,1]"),
        ("INT64", "[9223372036854775807.0,1]"),
        ("INT64", "[1e30,1]"),
        ("INT8", "[1.0,true]"),
        ("BOOL", "[1.0,0]"),
        ("INT32", "[" * 101 + "1,2" + "]" * 101),
    ],
)
def test_floats_that_are_no_whole_number_of_the_datatype_are_refused(datatype: str, data: str) -> None:
    head = f'{{"inputs":[{{"name":"x","datatype":"{datatype}","shape":[2],"data":{data}}}]}}'
    with pytest.raises(CallerError, match="`x`"):
        oip.decode_request(head.encode(), None, "m")


def test_a_million_elements_nested_are_read() -> None:
    values = np.arange(1_000_000, dtype="<i4").reshape(1000, 1000)
    read = oip.decode_request(body(shape=[1000, 1000], data=values.tolist()), None, "m").inputs[0]
    assert bytes(read.data) == values.tobytes()


@given(st.binary(max_size=64), st.one_of(st.none(), st.integers(0, 80)))
def test_noise_is_refused_as_the_callers(noise: bytes, length: int | None) -> None:
    try:
        read = oip.decode_request(noise, length, "m")
    except CallerError:
        return
    assert length == 0 or noise.strip()[:1] == b"{"
    assert read.model_name == "m"


@pytest.mark.parametrize("seed", range(20))
def test_broken_requests_are_read_or_refused(seed: int) -> None:
    """Right requests with bytes changed, taken out and put in."""
    rng = random.Random(seed)
    tensors = [Tensor("x", "INT32", (2,), b"12345678"), Tensor("y", "BYTES", (1,), b"\x01\0\0\0z")]
    for in_binary in (True, False):
        text, length = oip.encode_request(Inference("m", inputs=tensors), binary=in_binary)
        for _ in range(150):
            broken = bytearray(text)
            for _ in range(rng.randint(1, 4)):
                at = rng.randrange(len(broken))
                broken[at : at + rng.randint(0, 3)] = rng.choice([b"", b"[", b"]", b"-", b"9", b'"', rng.randbytes(2)])
            try:
                read = oip.decode_request(bytes(broken), length, "m")
            except CallerError as error:
                assert error.message  # noqa: PT017 - any other error fails the test
            else:
                assert all(len(t.data) == element_count(t.shape) * 4 for t in read.inputs if t.datatype == "INT32")
