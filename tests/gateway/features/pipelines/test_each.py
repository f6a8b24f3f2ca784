"""Steps that run once for each row: their bounds, their reservation, and batches without rows."""

from typing import Any

import msgspec
import pytest

from adapters.base import Answer
from adapters.call import Call
from adapters.errors import CallerError, LimitExceeded, StepFailed
from adapters.fake import FakeAdapter
from adapters.requests import ModelQuery, ModelRequest
from adapters.tensors import Tensor
from adapters.wire.oip import bodies
from adapters.wire.oip.bodies import ModelMetadata, TensorMetadata
from tests.gateway.features.pipelines.rigs import EACH, batch, chat_fake, floats, infer, infers, outputs, rig
from tests.support.gateways import chat

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
