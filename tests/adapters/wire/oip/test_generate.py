"""One JSON object in, one out: tensors and parameters by their names."""

import json
import random
from typing import Any

import pytest

from adapters.errors import CallerError
from adapters.tensors import Inferred, Tensor, join_bytes
from adapters.wire.oip import generate as oip_generate
from adapters.wire.oip.bodies import TensorMetadata

INPUTS = {
    one.name: one
    for one in (
        TensorMetadata("text_input", "BYTES", (-1, 1)),
        TensorMetadata("pairs", "INT32", (-1, 2)),
        TensorMetadata("grid", "FP32", (-1, -1)),
        TensorMetadata("fixed", "BOOL", (1,)),
    )
}


def decode(**fields: Any) -> Any:
    return oip_generate.decode_generate(json.dumps(fields).encode(), "m", "2", INPUTS)


def test_keys_are_tensors_or_parameters() -> None:
    inference = decode(id="7", text_input="hi", temperature=0.5, parameters={"pairs": [1, 2, 3, 4], "stream": True})
    assert (inference.model_name, inference.model_version, inference.id) == ("m", "2", "7")
    assert inference.parameters == {"temperature": 0.5, "stream": True}
    assert {t.name: (t.datatype, t.shape, bytes(t.data)) for t in inference.inputs} == {
        "text_input": ("BYTES", (1, 1), join_bytes([b"hi"])),
        "pairs": ("INT32", (2, 2), b"\x01\0\0\0\x02\0\0\0\x03\0\0\0\x04\0\0\0"),
    }


def test_the_innermost_variable_dimension_takes_the_elements() -> None:
    assert decode(grid=[1, 2, 3]).inputs[0].shape == (1, 3)
    assert decode(fixed=True).inputs[0].shape == (1,)
    assert decode(text_input=["a", "b"]).inputs[0].shape == (2, 1)


def test_a_key_given_outside_goes_before_one_in_parameters() -> None:
    assert decode(top_k=1, parameters={"top_k": 2}).parameters == {"top_k": 1}


def test_an_input_may_be_called_id() -> None:
    inputs = {"id": TensorMetadata("id", "INT64", (1,))}
    inference = oip_generate.decode_generate(b'{"id": 5}', "m", "", inputs)
    assert inference.inputs[0].name == "id"
    assert inference.id == ""


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"pairs": [1, 2, 3]}, r"`pairs` has 3 elements, which do not make up its shape \[-1, 2\]"),
        ({"fixed": [True, False]}, "`fixed` has 2 elements"),
        ({"pairs": [1, 0.5]}, "`pairs`"),
        ({"pairs": "ab"}, "`pairs`"),
        ({"text_input": None}, "`text_input`"),
        ({"text_input": {}}, "`text_input`"),
        ({"temperature": None}, "`temperature`"),
        ({"temperature": [1]}, "`temperature`"),
        ({"parameters": 3}, "`parameters` must be a JSON object"),
        ({"id": 3}, "`id`"),
    ],
)
def test_an_invalid_value_is_refused_by_its_key(fields: dict[str, Any], words: str) -> None:
    with pytest.raises(CallerError, match=words):
        decode(**fields)


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b"\xff", b'{"a":NaN}', b'{"a":' + b"[" * 100_000])
def test_bodies_that_are_no_object(body: bytes) -> None:
    with pytest.raises(CallerError):
        oip_generate.decode_generate(body, "m", "", INPUTS)


@pytest.mark.parametrize("seed", range(10))
def test_broken_bodies_are_read_or_refused(seed: int) -> None:
    rng = random.Random(seed)
    body = json.dumps({"text_input": ["a"], "grid": [1, 2.5], "id": "x", "parameters": {"pairs": [1, 2]}}).encode()
    for _ in range(200):
        broken = bytearray(body)
        at = rng.randrange(len(broken))
        broken[at : at + rng.randint(0, 2)] = rng.choice([b"", b"[", b"]", b"-", b"1", b'"', rng.randbytes(1)])
        try:
            read = oip_generate.decode_generate(bytes(broken), "m", "", INPUTS)
        except CallerError as error:
            assert error.message  # noqa: PT017 - any other error fails the test
        else:
            assert read.model_name == "m"


def test_an_answer_is_flat_and_one_element_is_no_list() -> None:
    outputs = [
        Tensor("text_output", "BYTES", (1, 1), join_bytes([b"ho"])),
        Tensor("scores", "FP32", (2,), b"\0\0\x80\x3f\0\0\xc0\x7f"),
    ]
    body = oip_generate.encode_generate(Inferred("m", "2", "7", {"triton_final_response": True, "mine": 1}, outputs))
    assert json.loads(body) == {
        "model_name": "m", "model_version": "2", "id": "7", "mine": 1,
        "text_output": "ho", "scores": [1.0, None],
    }  # fmt: skip
