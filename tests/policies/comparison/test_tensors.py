"""Tensors within tolerances, against numpy."""

import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from config.schema.copies import TensorComparisonConfig
from policies.comparison.answers import ComparedTensor
from policies.comparison.tensors import tensor_difference, tensor_differences

SHAPES = arrays.array_shapes(max_dims=3, max_side=5)
DTYPES = {"FP16": "<f2", "FP32": "<f4", "FP64": "<f8"}
VALUES = {"FP16": st.floats(width=16), "FP32": st.floats(width=32), "FP64": st.floats(width=64)}


def tensor(array: np.ndarray, datatype: str, name: str = "out") -> ComparedTensor:
    return ComparedTensor(name, datatype, array.shape, array.tobytes())


@given(
    st.data(), st.sampled_from(sorted(DTYPES)), SHAPES, st.sampled_from([0.0, 1e-3, 0.1]), st.sampled_from([0.0, 1e-2])
)
def test_floats_agree_as_in_numpy(
    data: st.DataObject, datatype: str, shape: tuple[int, ...], rtol: float, atol: float
) -> None:
    """The reference is the primary: |a - b| <= atol + rtol |a|."""
    dtype = np.dtype(DTYPES[datatype])
    values = VALUES[datatype] | st.sampled_from([0.0, 1.0, 1.001, np.inf, -np.inf, np.nan])
    first = data.draw(arrays.arrays(dtype, shape, elements=values))
    near = data.draw(arrays.arrays(np.float64, shape, elements=st.sampled_from([0.0, 1e-4, 1e-2, 0.2])))
    with np.errstate(all="ignore"):
        second = (
            (first * (1 + near)).astype(dtype)
            if data.draw(st.booleans())
            else data.draw(arrays.arrays(dtype, shape, elements=values))
        )
        wide, other = first.astype(np.float64), second.astype(np.float64)
        agree = np.isclose(other, wide, rtol=rtol, atol=atol, equal_nan=True).all()
    config = TensorComparisonConfig(rtol=rtol, atol=atol)
    assert (tensor_difference(tensor(first, datatype), tensor(second, datatype), config) == "") == agree


@given(
    arrays.arrays(np.float32, st.tuples(st.integers(1, 4), st.integers(1, 8)), elements=st.integers(-3, 3)),
    st.integers(1, 8),
)
def test_the_largest_values_are_those_of_a_sort(first: np.ndarray, count: int) -> None:
    second = first[:, ::-1].copy()
    config = TensorComparisonConfig(top_k=count)

    def largest(rows: np.ndarray) -> list[list[int]]:
        positions: list[list[int]] = np.argsort(-rows, axis=1, kind="stable")[:, :count].tolist()
        return positions

    difference = tensor_difference(tensor(first, "FP32"), tensor(second, "FP32"), config)
    assert (difference == "") == (largest(first) == largest(second))


def test_a_difference_of_a_hundredth_is_named() -> None:
    first = np.linspace(1, 2, 16, dtype=np.float32).reshape(2, 8)
    config = TensorComparisonConfig()
    assert tensor_difference(tensor(first, "FP32"), tensor(first * np.float32(1.0001), "FP32"), config) == ""
    named = tensor_difference(tensor(first, "FP32"), tensor(first + np.float32(0.01), "FP32"), config)
    assert named == "16 of 16 values differ, by 0.01 at most"


def test_bfloat16_is_widened() -> None:
    halves = struct.pack("<3H", 0x3F80, 0x4000, 0x7FC0)  # 1, 2, NaN
    other = struct.pack("<3H", 0x3F80, 0x4001, 0x7FC0)  # 2.015625
    ones, others = (ComparedTensor("out", "BF16", (3,), data) for data in (halves, other))
    assert tensor_difference(ones, others, TensorComparisonConfig(rtol=0.01)) == ""
    assert tensor_difference(ones, others, TensorComparisonConfig(rtol=0.001)).startswith("1 of 3 values")


@pytest.mark.parametrize("datatype", ["INT64", "BOOL", "BYTES", "UINT8"])
def test_other_datatypes_are_equal_or_not(datatype: str) -> None:
    ones, others = (
        ComparedTensor("out", datatype, (1,), b"\x01" * 8),
        ComparedTensor("out", datatype, (1,), b"\x02" * 8),
    )
    assert tensor_difference(ones, ones, TensorComparisonConfig()) == ""
    assert tensor_difference(ones, others, TensorComparisonConfig(rtol=1, atol=100)) == "the elements differ"


def test_datatypes_shapes_and_names_count() -> None:
    one = ComparedTensor("a", "FP32", (2, 2), b"\0" * 16)
    config = TensorComparisonConfig(ignore=("noise",))
    assert tensor_difference(one, ComparedTensor("a", "FP64", (2,), b"\0" * 16), config) == "FP32 and FP64"
    assert tensor_difference(one, ComparedTensor("a", "FP32", (4,), b"\0" * 16), config) == "shapes [2, 2] and [4]"
    noise = ComparedTensor("noise", "FP32", (1,), b"\1\2\3\4")
    assert tensor_differences([one, noise], [one], config) == {}
    other = ComparedTensor("b", "FP32", (2, 2), b"\0" * 16)
    assert tensor_differences([one], [other], config) == {
        "a": "the shadow has no such output",
        "b": "only the shadow has it",
    }
