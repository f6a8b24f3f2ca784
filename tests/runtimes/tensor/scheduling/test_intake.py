"""Requests as their model reads them, and the encoding of its outputs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adapters.errors import CallerError, TooLarge
from adapters.tensors import Inference, RequestedOutput, Tensor, join_bytes
from runtimes.tensor.configuration.model_config import DynamicBatching, ModelConfig, TensorSpec
from runtimes.tensor.datatypes import DTYPES
from runtimes.tensor.scheduling.intake import MAX_PARTS, Intake
from runtimes.tensor.scheduling.outlet import ResponseOutlet
from runtimes.tensor.texts import expanded

pytestmark = pytest.mark.plain
IN = TensorSpec("IN", "INT32", (2,))
ANY = TensorSpec("ANY", "FP32", (-1, 3), optional=True)


def config(*inputs: TensorSpec, rows: int = 4, **fields: Any) -> ModelConfig:
    outputs = (TensorSpec("OUT", "INT32", (2,)), TensorSpec("OTHER", "INT32", (2,)))
    return ModelConfig("m", "test", inputs or (IN, ANY), outputs, rows, **fields)


def tensor(name: str = "IN", shape: tuple[int, ...] = (1, 2), datatype: str = "INT32", data: bytes | None = None) -> Tensor:  # fmt: skip  # noqa: E501
    size = int(np.prod(shape)) * (DTYPES[datatype].itemsize if datatype != "BYTES" else 1)
    return Tensor(name, datatype, shape, bytes(size) if data is None else data)


@pytest.mark.parametrize(
    ("tensors", "names"),
    [
        ([tensor("in")], ["unexpected inference input 'in' for model 'm'", "`ANY`, `IN`"]),
        ([], ["expected 1 inputs but got 0 inputs for model 'm'", "missing required input(s) ['IN']"]),
        ([tensor("ANY", (1, 4, 3), "FP32")], ["Got input(s) ['ANY'], but missing required input(s) ['IN']."]),
        ([tensor(), tensor()], ["input 'IN' already exists in request"]),
        ([tensor(datatype="INT64")], ["inference input 'IN' data-type is 'INT64', but model 'm' expects 'INT32'"]),
        ([tensor(shape=(1, 3))], ["unexpected shape for input 'IN' for model 'm'. Expected [-1,2], got [1,3]. NOTE: "]),
        ([tensor(shape=(2,))], ["'IN'", "Expected [-1,2], got [2]."]),
        ([tensor(shape=(1, 2, 1))], ["'IN'", "got [1,2,1]."]),
        ([tensor(shape=())], ["'IN'", "got []."]),
        ([tensor(shape=(0, 2))], ["no rows"]),
        ([tensor(data=b"1234567")], ["input byte size mismatch for input 'IN' for model 'm'. Expected 8, got 7"]),
        ([tensor(data=b"123456789")], ["input 'IN'", "Expected 8, got 9"]),
        (
            [tensor(shape=(2, 2)), tensor("ANY", (1, 4, 3), "FP32")],
            ["input 'ANY' batch size does not match other inputs", "2."],
        ),
        ([tensor(shape=(0, 2)), tensor("ANY", (1, 4, 3), "FP32")], ["'ANY'", "1 rows", "0"]),
        ([tensor(), tensor("ANY", (1, 4, 2), "FP32")], ["'ANY'", "Expected [-1,-1,3], got [1,4,2]."]),
    ],
)
def test_mismatched_tensors_are_refused_by_name(tensors: list[Tensor], names: list[str]) -> None:
    with pytest.raises(CallerError) as refused:
        Intake(config()).read(Inference("m", inputs=tensors))
    assert all(name in refused.value.message for name in names), refused.value.message


def test_too_many_rows_and_outputs_that_are_not_there_are_refused() -> None:
    intake = Intake(config())
    with pytest.raises(TooLarge, match=f"inference request batch-size must be <= {4 * MAX_PARTS} for 'm'"):
        intake.read(Inference("m", inputs=[tensor(shape=(4 * MAX_PARTS + 1, 2))]))
    with pytest.raises(CallerError, match="unexpected inference output 'NONE' for model 'm'"):
        intake.read(Inference("m", inputs=[tensor()], outputs=[RequestedOutput("OUT"), RequestedOutput("NONE")]))
    with pytest.raises(CallerError, match="twice"):
        intake.read(Inference("m", inputs=[tensor()], outputs=[RequestedOutput("OUT"), RequestedOutput("OUT")]))


def test_only_requests_of_one_shape_with_the_same_inputs_are_alike() -> None:
    intake = Intake(config())
    plain = Inference("m", inputs=[tensor()])
    some = [Inference("m", inputs=[tensor(), tensor("ANY", (1, length, 3), "FP32")]) for length in (4, 5)]
    swapped = Inference("m", inputs=some[0].inputs[::-1])
    keys = [intake.read(inference).key for inference in (plain, *some, swapped)]
    assert len(set(keys)) == 3
    assert keys[1] == keys[3]
    fixed = Intake(config(IN))
    assert fixed.read(plain).key == fixed.read(Inference("m", inputs=[tensor(shape=(3, 2))])).key


def test_two_inputs_of_other_lengths_leave_outputs_padded() -> None:
    pads = DynamicBatching(pad_to={"A": (4,), "B": (4,)})
    both = (TensorSpec("A", "INT32", (-1,)), TensorSpec("B", "INT32", (-1,)))
    intake = Intake(config(*both, dynamic_batching=pads))
    alike = intake.read(Inference("m", inputs=[tensor("A", (1, 3)), tensor("B", (1, 3))]))
    assert alike.cuts == {1: (4, 3)}
    other = intake.read(Inference("m", inputs=[tensor("A", (1, 3)), tensor("B", (1, 2))]))
    assert other.cuts is None
    assert [array.shape for array in other.inputs.values()] == [(1, 4), (1, 4)]


@settings(max_examples=50)
@given(
    datatype=st.sampled_from(sorted(DTYPES)),
    rows=st.integers(1, 4),
    width=st.integers(0, 3),
    offset=st.integers(0, 7),
    data=st.data(),
)
def test_bytes_come_out_as_they_went_in(datatype: str, rows: int, width: int, offset: int, data: st.DataObject) -> None:
    """Any datatype, at any place of a body, with and without a batch."""
    if datatype == "BYTES":
        body = join_bytes(data.draw(st.lists(st.binary(max_size=5), min_size=rows * width, max_size=rows * width)))
    else:
        size = rows * width * DTYPES[datatype].itemsize
        body = data.draw(st.binary(min_size=size, max_size=size))
        if datatype == "BOOL":
            body = bytes(byte & 1 for byte in body)
    lying = memoryview(b"x" * offset + body + b"x")[offset : offset + len(body)]
    for batched in (True, False):
        dims = (width,) if batched else (rows, width)
        spec = TensorSpec("T", datatype, dims)
        model = ModelConfig("m", "test", (spec,), (spec,), 4 * batched)
        prepared = Intake(model).read(Inference("m", inputs=[Tensor("T", datatype, (rows, width), lying)]))
        assert expanded(prepared.inputs["T"]).flags.aligned
        ((reported,),) = ResponseOutlet(model).split(prepared.inputs, [prepared])
        assert (reported.shape, bytes(reported.data)) == ((rows, width), body)


def test_a_byte_that_is_no_bool_is_true() -> None:
    spec = TensorSpec("T", "BOOL", (3,))
    prepared = Intake(config(spec)).read(Inference("m", inputs=[Tensor("T", "BOOL", (1, 3), b"\x00\x02\xff")]))
    assert prepared.inputs["T"].tolist() == [[False, True, True]]


def test_each_member_has_its_rows_in_the_requested_order() -> None:
    model = config(IN)
    prepared = Intake(model).read(Inference("m", inputs=[tensor(shape=(2, 2))]))
    picked = prepared._replace(rows=1, requested=("OTHER", "OUT"))
    rows = np.arange(8, dtype="<i4").reshape(4, 2)
    first, second = ResponseOutlet(model).split({"OTHER": rows + 10, "OUT": rows}, [prepared, picked])
    assert [(t.name, t.shape, np.frombuffer(t.data, "<i4").tolist()) for t in first] == [
        ("OUT", (2, 2), [0, 1, 2, 3]),
        ("OTHER", (2, 2), [10, 11, 12, 13]),
    ]
    assert [(t.name, np.frombuffer(t.data, "<i4").tolist()) for t in second] == [("OTHER", [14, 15]), ("OUT", [4, 5])]
