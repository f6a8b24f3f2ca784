"""Rows of values: what is split and joined again is what it was."""

import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.tensors import ITEM_SIZE, Tensor, element_count, join_bytes
from adapters.wire.oip.bodies import TensorMetadata
from gateway.features.pipelines.rows import gathered, row_count, rows_of
from gateway.features.pipelines.values import UnusableValueError, elements_of, plain, tensor_of


@st.composite
def tensors(draw: st.DrawFn) -> Tensor:
    datatype = draw(st.sampled_from([*ITEM_SIZE, "BYTES"]))
    shape = (draw(st.integers(1, 5)), *draw(st.lists(st.integers(1, 3), max_size=2)))
    count = element_count(shape)
    if datatype == "BYTES":
        data = join_bytes(draw(st.lists(st.binary(max_size=6), min_size=count, max_size=count)))
    else:
        size = count * ITEM_SIZE[datatype]
        data = draw(st.binary(min_size=size, max_size=size))
    return Tensor("x", datatype, shape, data)


@given(tensors())
async def test_rows_that_are_gathered_again_are_the_tensor(tensor: Tensor) -> None:
    count = row_count({"x": tensor})
    rows = await rows_of({"x": tensor, "same": 5}, count)
    assert len(rows) == tensor.shape[0]
    assert all(row["x"].shape == (1, *tensor.shape[1:]) for row in rows)
    again = (await gathered([{"x": row["x"]} for row in rows]))["x"]
    assert (again.datatype, again.shape, bytes(again.data)) == (tensor.datatype, tensor.shape, bytes(tensor.data))
    assert {row["same"] for row in rows} == {5}


@pytest.mark.parametrize(
    ("inputs", "reason"),
    [
        ({"a": 1}, "no input has rows"),
        ({"a": Tensor("a", "FP32", (), b"1234")}, "no dimension of rows"),
        ({"a": [1, 2], "b": [1]}, "differ in their rows"),
    ],
)
def test_inputs_without_common_rows_are_refused(inputs: dict[str, Any], reason: str) -> None:
    with pytest.raises(UnusableValueError, match=reason):
        row_count(inputs)


async def test_a_tensor_with_data_of_another_shape_is_refused() -> None:
    for tensor in (Tensor("a", "FP32", (2, 2), b"1234"), Tensor("a", "BYTES", (2,), b"\xff\xff\xff\xff")):
        with pytest.raises(UnusableValueError):
            await rows_of({"a": tensor}, 2)
        with pytest.raises(UnusableValueError):
            elements_of(tensor)


async def test_rows_that_do_not_fit_together_are_refused() -> None:
    one, other = Tensor("y", "FP32", (1, 1), b"1234"), Tensor("y", "FP32", (1, 2), b"12345678")
    with pytest.raises(UnusableValueError, match="differ in datatype or shape"):
        await gathered([{"y": one}, {"y": other}])
    with pytest.raises(UnusableValueError, match="differ in their names"):
        await gathered([{"y": one}, {"z": one}])
    assert await gathered([]) == {}


@given(st.lists(st.one_of(st.text(max_size=5), st.integers(-(2**63), 2**63 - 1)), min_size=1, max_size=4))
def test_values_become_tensors_of_their_kind_or_are_refused(values: list[Any]) -> None:
    kinds = {type(value) for value in values}
    if len(kinds) > 1:
        with pytest.raises(UnusableValueError):
            tensor_of("x", values)
        return
    tensor = tensor_of("x", values)
    assert tensor.datatype == ("BYTES" if str in kinds else "INT64")
    readable = [value for value in values if not isinstance(value, str) or value.isprintable()]
    if readable == values:
        assert elements_of(tensor) == values
        assert plain(tensor) == (values[0] if len(values) == 1 else values)


def test_a_number_outside_of_the_declared_datatype_is_refused() -> None:
    declared = TensorMetadata("x", "INT8", (-1,))
    with pytest.raises(UnusableValueError, match="outside of INT8"):
        tensor_of("x", 300, declared)
    assert tensor_of("x", [1, 2], TensorMetadata("x", "FP64", (-1, 1))).data == struct.pack("<2d", 1, 2)
