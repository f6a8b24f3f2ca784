"""Steps that depend on each other: what they receive, when they run, and what the client gets."""

import asyncio
import json

import pytest

from adapters.errors import BackendError, CallerError, DeadlineError, LimitExceeded, StepFailed, TransportError
from adapters.fake import FakeAdapter, Script
from tests.gateway.features.pipelines.rigs import (
    TWO,
    chat_fake,
    chat_script,
    chunks,
    floats,
    infer,
    infers,
    outputs,
    rig,
    sent,
)
from tests.support.gateways import Rig, chat

NAMED = {
    "steps": [
        {"name": "first", "model": "a", "in": {"x": "request.image"}},
        {"name": "second", "model": "b", "in": {"y": "first.boxes"}},
    ]
}


def two(first: FakeAdapter | None = None, second: FakeAdapter | None = None, **more: object) -> Rig:
    fakes = {"a": first or infers(floats("boxes", 1, 2)), "b": second or infers(floats("text", 3))}
    return rig({**NAMED, **more}, fakes, tensors="ab")


async def test_a_step_receives_the_outputs_that_it_names() -> None:
    one = two(out={"label": "second.text", "boxes": "first.boxes"})
    answer = await one.core.handle(one.principal, infer(floats("image", 9)), {}, record := one.record())
    made = await outputs(answer)
    assert {name: bytes(tensor.data) for name, tensor in made.items()} == {
        "label": floats("", 3).data,
        "boxes": floats("", 1, 2).data,
    }
    assert sent(one, "a")["x"].data == floats("", 9).data
    assert sent(one, "b")["y"].data == floats("", 1, 2).data
    assert [(step.name, step.outcome) for step in record.trace.steps] == [("first", "ok"), ("second", "ok")]
    assert record.usage is not None
    assert record.usage.rows == 2


async def test_a_chat_streams_through_the_last_step() -> None:
    events = chunks("Hel", "lo")
    one = rig({"steps": [{"name": "answer", "model": "a"}]}, {"a": FakeAdapter(Script(chunks=events, gap=1.0))})
    answer = await one.core.handle(one.principal, chat("whole", stream=True), {}, record := one.record())
    loop, times = asyncio.get_running_loop(), list[float]()
    pieces = []
    async for piece in answer:
        pieces.append(piece)
        times.append(loop.time())
    assert tuple(pieces) == events
    assert times[1] - times[0] == pytest.approx(1.0)
    assert record.usage is not None
    assert record.usage.prompt_tokens == 3
    assert sent(one, "a")["model"] == "a"


async def test_a_text_of_one_model_is_the_prompt_of_another() -> None:
    one = rig(TWO, {"a": chat_fake("a draft"), "b": chat_fake("the answer")})
    request = chat("whole", temperature=0.5)
    answer = await one.core.handle(one.principal, request, {}, record := one.record())
    assert answer.body is not None
    assert json.loads(answer.body)["choices"][0]["message"]["content"] == "the answer"
    assert sent(one, "b")["messages"] == [{"role": "user", "content": "a draft"}]
    assert sent(one, "b")["temperature"] == 0.5
    assert record.usage is not None
    assert record.usage.completion_tokens == 4


async def test_steps_without_references_to_each_other_run_at_once() -> None:
    pipeline = {
        "steps": [
            {"name": "left", "model": "a", "in": {"x": "request.x"}},
            {"name": "right", "model": "b", "in": {"x": "request.x"}},
            {"name": "join", "model": "c", "in": {"l": "left.y", "r": "right.y"}},
        ]
    }
    fakes = {name: infers(floats("y", 1), latency=1.0) for name in "abc"}
    one = rig(pipeline, fakes, tensors="abc")
    started = one.core.clock()
    await one.core.handle(one.principal, infer(floats("x", 1)), {}, one.record())
    assert one.core.clock() - started == pytest.approx(2.0)


async def test_a_failure_of_a_step_names_it_and_ends_the_others_at_once() -> None:
    pipeline = {
        "steps": [
            {"name": "slow", "model": "a", "in": {"x": "request.x"}},
            {"name": "broken", "model": "b", "in": {"x": "request.x"}},
        ],
        "out": {"l": "slow.y", "r": "broken.y"},
    }
    failing = FakeAdapter(Script(latency=1.0, fault=TransportError("gone")))
    one = rig(pipeline, {"a": infers(floats("y", 1), latency=60.0), "b": failing}, tensors="ab")
    started = one.core.clock()
    with pytest.raises(TransportError) as caught:
        await one.core.handle(one.principal, infer(floats("x", 1)), {}, record := one.record())
    assert caught.value.message == "The step `broken` failed: gone"
    one.core.end(record, caught.value)
    assert one.core.clock() - started < 2.1  # two attempts of a second each
    assert one.adapters["a"][0].calls[0].end == "cancelled"
    assert {step.name: step.outcome for step in record.trace.steps} == {"slow": "cancelled", "broken": "failed"}


async def test_a_client_s_mistake_stays_the_client_s_and_a_step_s_is_a_502() -> None:
    wrong = FakeAdapter(Script(fault=CallerError("bad shape")))
    first = two(wrong)
    with pytest.raises(CallerError, match="bad shape"):
        await first.core.handle(first.principal, infer(floats("image", 9)), {}, first.record())
    second = two(second=FakeAdapter(Script(fault=CallerError("bad shape"))))
    with pytest.raises(StepFailed, match="`second` failed: bad shape") as caught:
        await second.core.handle(second.principal, infer(floats("image", 9)), {}, second.record())
    assert (caught.value.step, caught.value.code) == ("second", "pipeline_step_failed")
    with pytest.raises(CallerError, match="no input `image`"):
        await first.core.handle(first.principal, infer(floats("picture", 9)), {}, first.record())
    missing = two(infers(floats("other", 1)))
    with pytest.raises(StepFailed, match="no output `boxes`: it has `other`"):
        await missing.core.handle(missing.principal, infer(floats("image", 9)), {}, missing.record())


async def test_one_deadline_bounds_all_steps() -> None:
    fakes = {name: infers(floats("boxes", 1), latency=0.1) for name in "abc"}
    steps = [
        {"name": "one", "model": "a", "in": {"x": "request.x"}},
        {"name": "two", "model": "b", "in": {"x": "one.boxes"}},
        {"name": "three", "model": "c", "in": {"x": "two.boxes"}},
    ]
    one = rig({"steps": steps, "deadline": "150ms"}, fakes, tensors="abc")
    started = one.core.clock()
    with pytest.raises(DeadlineError):
        await one.core.handle(one.principal, infer(floats("x", 1)), {}, record := one.record())
    assert one.core.clock() - started == pytest.approx(0.15, abs=0.01)
    assert len(one.adapters["c"][0].calls) == 0
    assert [step.name for step in record.trace.steps] == ["one", "two"]


async def test_a_step_with_too_little_time_fails_before_its_call() -> None:
    steps = [
        {"name": "one", "model": "a", "in": {"x": "request.x"}},
        {"name": "two", "model": "b", "in": {"x": "one.y"}, "at_least": "500ms"},
    ]
    fakes = {"a": infers(floats("y", 1), latency=0.6), "b": infers(floats("y", 1))}
    one = rig({"steps": steps, "deadline": "1s"}, fakes, tensors="ab")
    with pytest.raises(DeadlineError) as caught:
        await one.core.handle(one.principal, infer(floats("x", 1)), {}, one.record())
    assert "`two` failed: The request has 400 ms left" in caught.value.message
    assert one.adapters["b"][0].calls == []


async def test_a_failed_step_is_skipped_or_replaced_if_configured() -> None:
    broken = FakeAdapter(Script(fault=BackendError("no")))
    steps = [
        {"name": "score", "model": "a", "in": {"x": "request.x"}, "on_error": {"use": {"y": 0.5}}},
        {"name": "use", "model": "b", "in": {"s": "score.y"}},
    ]
    described = Script(chunks=(b'{"name":"b","inputs":[{"name":"s","datatype":"FP64","shape":[-1,1]}]}',))
    one = rig({"steps": steps}, {"a": broken, "b": infers(floats("z", 1), first=described)}, tensors="ab")
    answer = await one.core.handle(one.principal, infer(floats("x", 1)), {}, record := one.record())
    assert ("x-headrace-steps", "score=used") in answer.headers
    assert [step.outcome for step in record.trace.steps] == ["used", "ok"]
    assert (sent(one, "b")["s"].datatype, sent(one, "b")["s"].shape) == ("FP64", (1, 1))


async def test_the_worst_path_is_reserved_and_the_truth_is_charged() -> None:
    prices = {"a": "0.001 usd", "b": "0.01 usd"}
    limits = {"tokens": "1000/min", "requests": "10/min"}
    one = rig(TWO, {"a": chat_fake("d"), "b": chat_fake("f", latency=1.0)}, limits=limits, prices=prices)
    task = asyncio.create_task(
        one.core.handle(one.principal, chat("whole", max_tokens=100), {}, record := one.record())
    )
    await asyncio.sleep(0.5)
    assert one.ledger.accounts["acme"].reserved_tokens > 200
    assert one.ledger.accounts["acme"].in_flight == 1
    await task
    assert one.left("tokens") == pytest.approx(1000 - 10, abs=20)
    assert one.left("requests") == pytest.approx(9, abs=0.5)
    assert str(record.cost) == "0.011 usd"


async def test_usage_before_a_failure_is_charged() -> None:
    prices = {"a": "0.001 usd", "b": "0.01 usd"}
    broken = FakeAdapter(Script(fault=BackendError("no")))
    one = rig(TWO, {"a": chat_fake("d"), "b": broken}, limits={"tokens": "1000/d"}, prices=prices)
    with pytest.raises(BackendError):
        await one.core.handle(one.principal, chat("whole"), {}, record := one.record())
    assert one.left("tokens") == pytest.approx(995, abs=0.5)
    assert str(record.cost) == "0.001 usd"


async def test_a_limit_of_one_model_counts_its_calls() -> None:
    limits = [{"requests": "1/min", "models": ["b"], "per": "tenant"}, {"requests": "100/min"}]
    one = rig(TWO, {"a": chat_fake("d"), "b": chat_fake("f")}, limits=limits)
    await one.core.handle(one.principal, chat("whole"), {}, one.record())
    with pytest.raises(LimitExceeded) as caught:
        await one.core.handle(one.principal, chat("whole"), {}, one.record())
    assert caught.value.message.startswith("The step `final` failed: acme is over its limit of requests")


async def test_rows_are_computed_one_by_one_and_gathered() -> None:
    from adapters.tensors import Tensor

    steps = [{"name": "rec", "model": "a", "in": {"crop": "request.crops"}, "each": True, "at_most": 2}]
    one = rig({"steps": steps}, {"a": infers(floats("y", 7), latency=1.0)}, tensors="a")
    crops = Tensor("crops", "FP32", (3, 1), floats("", 1, 2, 3).data)
    started = one.core.clock()
    answer = await one.core.handle(one.principal, infer(crops), {}, one.record())
    assert one.core.clock() - started == pytest.approx(2.0)
    assert (await outputs(answer))["y"].shape == (3, 1)
    assert sent(one, "a", 1)["crop"].data == floats("", 2).data


async def test_a_client_that_leaves_ends_all_steps() -> None:
    one = two(infers(floats("boxes", 1), latency=60.0))
    task = asyncio.create_task(one.core.handle(one.principal, infer(floats("image", 9)), {}, one.record()))
    await asyncio.sleep(1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert one.adapters["a"][0].calls[0].end == "cancelled"


async def test_a_pipeline_is_a_model_of_another_pipeline() -> None:
    inner = {"name": "inner", "pipeline": {"steps": [{"name": "draft", "model": "a"}]}}
    pipeline = {
        "steps": [{"name": "one", "model": "inner"}, {"name": "two", "model": "b", "in": {"prompt": "one.text"}}]
    }
    one = rig(
        pipeline, {"a": chat_fake("x"), "b": FakeAdapter(chat_script("y"))}, models=[inner], prices={"a": "0.001 usd"}
    )
    await one.core.handle(one.principal, chat("whole"), {}, record := one.record())
    assert [(step.pipeline, step.name) for step in record.trace.steps] == [
        ("whole", "one"), ("inner", "draft"), ("whole", "two"),
    ]  # fmt: skip
    assert record.usage is not None
    assert record.usage.completion_tokens == 4
    assert str(record.cost) == "0.001 usd"


@pytest.mark.parametrize("root", [{"model": "a"}, {"switch": [{"else": True, "model": "a"}]}])
async def test_a_pipeline_of_one_node_is_charged(root: dict[str, object]) -> None:
    one = rig(root, {"a": chat_fake("x")}, prices={"a": "0.001 usd"})
    await one.core.handle(one.principal, chat("whole"), {}, record := one.record())
    assert record.usage is not None
    assert (record.usage.total_tokens, str(record.cost)) == (5, "0.001 usd")
    assert [(step.name, step.outcome) for step in record.trace.steps] == [(next(iter(root)), "ok")]


async def test_steps_of_an_inner_pipeline_are_named_and_counted_once() -> None:
    inner = {
        "name": "inner",
        "limits": {"tokens": "1000/d"},
        "pipeline": {
            "steps": [
                {"name": "hint", "model": "b", "on_error": {"use": {"text": "none"}}},
                {"name": "draft", "model": "a", "in": {"prompt": "hint.text"}},
            ]
        },
    }
    pipeline = {
        "steps": [{"name": "one", "model": "a"}, {"name": "two", "model": "inner", "in": {"prompt": "one.text"}}]
    }
    one = rig(pipeline, {"a": chat_fake("x"), "b": FakeAdapter(Script(fault=BackendError("no")))}, models=[inner])
    answer = await one.core.handle(one.principal, chat("whole"), {}, record := one.record())
    assert [value for name, value in answer.headers if name == "x-headrace-steps"] == ["hint=used"]
    assert answer.body is not None
    assert json.loads(answer.body)["usage"]["total_tokens"] == 10
    assert record.usage is not None
    assert record.usage.total_tokens == 10
    assert [step.outcome for step in record.trace.steps] == ["ok", "ok", "used", "ok"]
    (limit,) = one.ledger.models["inner"].always
    assert limit.buckets["tokens"].remaining(one.core.clock()) == pytest.approx(995, abs=1)


async def test_the_usage_of_a_stream_counts_the_steps_of_an_inner_pipeline_once() -> None:
    inner_steps = [{"name": "x", "model": "a"}, {"name": "y", "model": "b", "in": {"prompt": "x.text"}}]
    inner = {"name": "inner", "pipeline": {"steps": inner_steps}}
    usage = {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}
    last = b"data: " + json.dumps({"choices": [], "usage": usage}).encode() + b"\n\n"
    events = (*chunks("a")[:-1], last, b"data: [DONE]\n\n")
    steps = [{"name": "one", "model": "a"}, {"name": "two", "model": "inner", "in": {"prompt": "one.text"}}]
    one = rig({"steps": steps}, {"a": chat_fake("x"), "b": FakeAdapter(Script(chunks=events))}, models=[inner])
    answer = await one.core.handle(one.principal, chat("whole", stream=True), {}, record := one.record())
    streamed = b"".join([piece async for piece in answer])
    assert b'"total_tokens":15' in streamed
    assert record.usage is not None
    assert record.usage.total_tokens == 15
