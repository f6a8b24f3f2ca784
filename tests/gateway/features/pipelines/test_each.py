"""Steps that run once for each row: their bounds, their reservation, and batches without rows."""

import struct
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.base import Answer
from adapters.call import Call
from adapters.errors import CallerError, LimitExceeded, StepFailed
from adapters.fake import FakeAdapter
from adapters.requests import ModelQuery, ModelRequest
from adapters.tensors import ITEM_SIZE, Tensor, element_count, join_bytes
from adapters.wire.oip import bodies
from adapters.wire.oip.bodies import ModelMetadata, TensorMetadata
from gateway.features.pipelines.each import gathered, row_count, rows_of
from gateway.features.pipelines.values import UnusableValueError, elements_of, plain, tensor_of
from tests.gateway.features.pipelines.rigs import EACH, batch, chat_fake, floats, infer, infers, outputs, rig
from tests.support.gateways import chat


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


PRICE = "0.001 usd"
DETECT = {"name": "det", "model": "b", "in": {"x": "request.x"}}
SCALAR = {"name": "det", "model": "c", "in": {"x": "request.x"}}
LATER = {"name": "rec", "model": "a", "in": {"x": "det.y"}, "each": True}


class DescribedFake(FakeAdapter):
    """A server of tensors with metadata, which has no answer to an inference."""

    def __init__(self, *outputs: TensorMetadata) -> None:
        super().__init__()
        self._metadata = ModelMetadata("a", ["1"], "fake", [], list(outputs))

    async def call(self, request: ModelRequest, call: Call) -> Answer:
        assert isinstance(request, ModelQuery), "an inference"
        return Answer(content_type="application/json", body=bodies.encode(self._metadata))


@pytest.mark.parametrize(
    ("steps", "rows", "admitted"),
    [
        ([EACH], 3, True),
        ([EACH], 4, False),  # the fourth exceeds the limit
        ([{**EACH, "max_rows": 3}], 3, True),
        ([DETECT, {**LATER, "max_rows": 3}], 1, False),  # the detector is the fourth
        ([DETECT, {**LATER, "max_rows": 2}], 1, True),
        ([{"name": "all", "each": True, "in": {"x": "request.x"}, "steps": [DETECT, LATER]}], 2, False),
        ([{"name": "all", "each": True, "in": {"x": "request.x"}, "steps": [DETECT, LATER]}], 1, True),
    ],
)
async def test_the_cost_of_all_rows_is_reserved(steps: list[dict[str, Any]], rows: int, admitted: bool) -> None:
    fakes = {"a": infers(floats("y", 7)), "b": infers(batch(1, "y"))}
    prices = dict.fromkeys(fakes, PRICE)
    one = rig({"steps": steps}, fakes, tensors="ab", prices=prices, limits={"spend": "0.004 usd/day"})
    await one.core.handle(one.principal, infer(batch(1), model="a"), {}, one.record())  # three calls are left
    fakes["a"].calls.clear()
    if admitted:
        await one.core.handle(one.principal, infer(batch(rows)), {}, record := one.record())
        calls = sum(len(fake.calls) for fake in fakes.values())
        assert str(record.cost) == f"{calls * 0.001:.3f} usd"
    else:
        with pytest.raises(LimitExceeded):
            await one.core.handle(one.principal, infer(batch(rows)), {}, one.record())
        assert not any(fake.calls for fake in fakes.values())


async def test_rows_of_an_earlier_step_are_charged_beyond_the_reservation() -> None:
    fakes = {"a": infers(floats("z", 7)), "b": infers(batch(5, "y"))}
    prices = dict.fromkeys(fakes, PRICE)
    one = rig({"steps": [DETECT, LATER]}, fakes, tensors="ab", prices=prices, limits={"spend": "0.003 usd/day"})
    await one.core.handle(one.principal, infer(batch(1)), {}, record := one.record())
    assert str(record.cost) == "0.006 usd"
    with pytest.raises(LimitExceeded):
        await one.core.handle(one.principal, infer(batch(1)), {}, one.record())


@pytest.mark.parametrize(
    ("steps", "rows", "error", "message"),
    [
        ([EACH], 1025, CallerError, "`x` has 1025 rows, and 1024 at most"),
        ([{**EACH, "max_rows": 4}], 5, CallerError, "`x` has 5 rows, and 4 at most"),
        ([DETECT, {**LATER, "max_rows": 4}], 1, StepFailed, "`x` has 5 rows, and 4 at most"),
        ([{"name": "all", "in": {"x": "request.x"}, "steps": [{**EACH, "max_rows": 4}]}], 5, CallerError, "5 rows"),
        ([DETECT, {"name": "all", "in": {"x": "det.y"}, "steps": [{**EACH, "max_rows": 4}]}], 1, StepFailed, "5 rows"),
        ([SCALAR, LATER], 1, StepFailed, "no dimension of rows"),
    ],
)
async def test_unusable_rows_are_the_mistake_of_their_source(
    steps: list[dict[str, Any]], rows: int, error: type[Exception], message: str
) -> None:
    scalar = infers(Tensor("y", "FP32", (), floats("", 1).data))
    fakes = {"a": infers(floats("z", 7)), "b": infers(batch(5, "y")), "c": scalar}
    one = rig({"steps": steps}, fakes, tensors="abc")
    with pytest.raises(error, match=message) as caught:
        await one.core.handle(one.principal, infer(batch(rows)), {}, one.record())
    assert type(caught.value) is error
    assert one.adapters["a"][0].calls == []


async def test_a_batch_without_rows_has_outputs_without_rows() -> None:
    model = DescribedFake(TensorMetadata("y", "INT64", (-1, 4)), TensorMetadata("t", "BYTES", (1,)))
    one = rig({"steps": [EACH]}, {"a": model}, tensors="a")
    answer = await one.core.handle(one.principal, infer(batch(0)), {}, one.record())
    tensors_of_answer = {
        name: (each.datatype, each.shape, len(each.data)) for name, each in (await outputs(answer)).items()
    }
    assert tensors_of_answer == {"y": ("INT64", (0, 4), 0), "t": ("BYTES", (0,), 0)}


@pytest.mark.parametrize(
    ("step", "error"),
    [
        (EACH, CallerError),  # the second dimension of the output is not declared
        ({**EACH, "model": None, "steps": [{"name": "x", "model": "a"}]}, CallerError),
    ],
)
async def test_a_batch_without_rows_is_refused_if_its_outputs_declare_no_shape(
    step: dict[str, Any], error: type[Exception]
) -> None:
    step = {name: value for name, value in step.items() if value is not None}
    one = rig({"steps": [step]}, {"a": DescribedFake(TensorMetadata("y", "INT64", (-1, -1)))}, tensors="a")
    with pytest.raises(error, match="`rec` has no row to compute: its inputs need one or more rows"):
        await one.core.handle(one.principal, infer(batch(0)), {}, one.record())


async def test_an_empty_list_of_texts_has_an_empty_list_of_answers() -> None:
    steps = [
        {"name": "parts", "model": "a", "in": {"prompt": "request.documents"}, "each": True},
        {"name": "text", "in": {"parts": "parts.text"}, "template": "{{ parts | length }} parts"},
    ]
    one = rig({"steps": steps}, {"a": chat_fake("x")})
    for documents in ([], ["b", "c"]):
        answer = await one.core.handle(one.principal, chat("whole", documents=documents), {}, one.record())
        assert answer.body is not None
        text = msgspec.json.decode(answer.body)["choices"][0]["message"]["content"]
        assert text == f"{len(documents)} parts"
