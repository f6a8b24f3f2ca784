"""Tensors and plain JSON values, both ways."""

import math
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.errors import BackendError
from adapters.tensors import Tensor, join_bytes
from adapters.wire.apps.bentoml_calls import tensor_of
from adapters.wire.oip.json_data import CODES
from adapters.wire.tfserving.predict_v1_responses import nested

SHAPES = st.lists(st.integers(1, 4), min_size=1, max_size=4).map(tuple)


@given(st.data(), SHAPES, st.sampled_from(["INT64", "FP64", "BOOL", "BYTES"]))
def test_tensors_survive_encoding_and_decoding(data: st.DataObject, shape: tuple[int, ...], datatype: str) -> None:
    count = math.prod(shape)
    if datatype == "BYTES":
        raw = join_bytes([text.encode() for text in data.draw(st.lists(st.text(), min_size=count, max_size=count))])
    else:
        element: st.SearchStrategy[Any] = {
            "INT64": st.integers(-(2**63), 2**63 - 1), "FP64": st.floats(allow_nan=False, allow_infinity=False),
            "BOOL": st.booleans(),
        }[datatype]  # fmt: skip
        values = data.draw(st.lists(element, min_size=count, max_size=count))
        raw = struct.pack(f"<{count}{CODES[datatype]}", *values)
    tensor = Tensor("x", datatype, shape, raw)
    assert tensor_of(nested(tensor), "x", datatype) == tensor
    assert tensor_of(nested(tensor), "x") == tensor


@pytest.mark.parametrize(
    ("value", "datatype", "shape"),
    [
        (3, "INT64", (1,)),
        (3.5, "FP64", (1,)),
        ("a", "BYTES", (1,)),
        (None, "FP64", (1,)),
        ([1, 2.5], "FP64", (2,)),
        ([None, 1], "FP64", (2,)),
        ([None, "a"], "BYTES", (1,)),
        ([], "FP64", (0,)),
        ([[1, 2], [3]], "BYTES", (1,)),
        ([{"a": 1}], "BYTES", (1,)),
        ([1, "a"], "BYTES", (1,)),
        ({"a": 1}, "BYTES", (1,)),
        ([True, 2], "BYTES", (1,)),
    ],
)
def test_datatypes_are_inferred(value: Any, datatype: str, shape: tuple[int, ...]) -> None:
    tensor = tensor_of(value, "x")
    assert (tensor.datatype, tensor.shape) == (datatype, shape)


@pytest.mark.parametrize(
    ("value", "datatype"), [([1.5], "INT32"), ([300], "INT8"), (["a"], "FP32"), ([1], "BF16"), (["\ud800"], "BYTES")]
)
def test_a_value_of_another_datatype_is_refused(value: Any, datatype: str) -> None:
    with pytest.raises(BackendError, match="`x` is not"):
        tensor_of(value, "x", datatype)


def test_texts_that_are_none() -> None:
    assert tensor_of([1, "a"], "x", "BYTES").data == join_bytes([b"1", b"a"])


def test_depth_has_a_bound() -> None:
    value: Any = 1
    for _ in range(40):
        value = [value]
    assert tensor_of(value, "x").datatype == "BYTES"
