"""Switches and ensembles: which node answers, and how several answers become one."""

import asyncio
import json
import struct
from typing import Any

import pytest
from pydantic import ValidationError

from adapters.errors import BackendError, StepFailed
from adapters.fake import FakeAdapter, Script
from adapters.tensors import Tensor, join_bytes
from config.schema.pipelines.pipeline import PipelineConfig
from tests.gateway.features.pipelines.rigs import chat_fake, chunks, floats, infer, infers, outputs, rig, sent
from tests.support.gateways import Rig, chat

BROKEN = BackendError("no")


def switch(first: FakeAdapter) -> Rig:
    branches = [{"if": "score.p >= 0.9", "model": "fast"}, {"else": True, "model": "careful"}]
    steps = [
        {"name": "score", "model": "a", "in": {"x": "request.x"}},
        {"name": "label", "switch": branches, "in": {"x": "request.x"}},
    ]
    fakes = {"a": first, "fast": infers(floats("y", 1)), "careful": infers(floats("y", 2))}
    return rig({"steps": steps}, fakes, tensors=["a", "fast", "careful"])


@pytest.mark.parametrize(("score", "chosen"), [(0.95, 1.0), (0.1, 2.0)])
async def test_only_the_branch_with_a_true_condition_runs(score: float, chosen: float) -> None:
    one = switch(infers(floats("p", score)))
    answer = await one.core.handle(one.principal, infer(floats("x", 1)), {}, record := one.record())
    assert (await outputs(answer))["y"].data == floats("y", chosen).data
    assert len(one.adapters["fast"][0].calls) + len(one.adapters["careful"][0].calls) == 1
    assert record.trace.steps[-1].branch == (0 if chosen == 1.0 else 1)


@pytest.mark.parametrize(
    ("first", "reason"),
    [
        (infers(floats("p", float("nan"))), "NaN"),
        (infers(floats("p", 1, 2)), "2 elements"),
        (infers(floats("q", 1)), "`score.p`"),
    ],
)
async def test_a_condition_without_a_result_is_the_step_s_failure(first: FakeAdapter, reason: str) -> None:
    one = switch(first)
    with pytest.raises(StepFailed) as caught:
        await one.core.handle(one.principal, infer(floats("x", 1)), {}, one.record())
    assert "The condition `score.p >= 0.9` of the step `label` has no result" in caught.value.message
    assert reason in caught.value.message


async def test_a_switch_streams_its_branch() -> None:
    branches = [{"if": "request.prompt_tokens > 1000", "model": "a"}, {"else": True, "model": "b"}]
    events = chunks("x", "y")
    one = rig({"switch": branches}, {"a": FakeAdapter(), "b": FakeAdapter(Script(chunks=events))})
    answer = await one.core.handle(one.principal, chat("whole", stream=True), {}, one.record())
    assert tuple([piece async for piece in answer]) == events


def ensemble(combine: str, fakes: dict[str, FakeAdapter], members: list[Any] | None = None, **more: Any) -> Rig:
    config = {"members": members or list(fakes), "combine": combine, **more}
    return rig({"ensemble": config}, fakes, tensors=list(fakes))


async def test_a_mean_is_weighted_and_renormalised_over_the_present_members() -> None:
    fakes = {"a": infers(floats("p", 1, 0)), "b": infers(floats("p", 0, 1)), "c": FakeAdapter(Script(fault=BROKEN))}
    members = [{"model": "a", "weight": 3}, "b", "c"]
    one = ensemble("mean", fakes, members, need=2)
    answer = await one.core.handle(one.principal, infer(floats("x", 1)), {}, one.record())
    assert struct.unpack("<2f", (await outputs(answer))["p"].data) == (0.75, 0.25)
    assert ("x-headrace-steps", "c=failed") in answer.headers


async def test_too_few_members_are_the_first_failure() -> None:
    fakes = {"a": infers(floats("p", 1), latency=60.0), "b": FakeAdapter(Script(fault=BROKEN))}
    one = ensemble("mean", fakes)
    with pytest.raises(BackendError):
        await one.core.handle(one.principal, infer(floats("x", 1)), {}, one.record())
    assert one.adapters["a"][0].calls[0].end == "cancelled"


async def test_a_vote_ends_once_it_is_decided() -> None:
    label = {name: Tensor("label", "INT64", (1,), struct.pack("<q", value)) for name, value in {"a": 7, "b": 7}.items()}
    fakes = {name: infers(tensor, latency=0.1) for name, tensor in label.items()}
    fakes["c"] = infers(Tensor("label", "INT64", (1,), struct.pack("<q", 1)), latency=60.0)
    one = ensemble("vote", fakes, need=2)
    started = one.core.clock()
    answer = await one.core.handle(one.principal, infer(floats("x", 1)), {}, one.record())
    assert one.core.clock() - started == pytest.approx(0.1, abs=0.01)
    assert struct.unpack("<q", (await outputs(answer))["label"].data) == (7,)
    assert one.adapters["c"][0].calls[0].end == "cancelled"


async def test_after_within_the_answers_that_are_there_count() -> None:
    fakes = {"a": infers(floats("p", 1)), "b": infers(floats("p", 3)), "c": infers(floats("p", 99), latency=60.0)}
    one = ensemble("mean", fakes, need=2, within="300ms")
    started = one.core.clock()
    answer = await one.core.handle(one.principal, infer(floats("x", 1)), {}, one.record())
    assert one.core.clock() - started == pytest.approx(0.3, abs=0.01)
    assert struct.unpack("<f", (await outputs(answer))["p"].data) == (2.0,)
    assert ("x-headrace-steps", "c=cancelled") in answer.headers


async def test_an_answer_with_nan_or_another_shape_counts_as_absent() -> None:
    fakes = {"a": infers(floats("p", 1)), "b": infers(floats("p", 3)), "c": infers(floats("p", float("nan")))}
    one = ensemble("mean", fakes, need=2)
    answer = await one.core.handle(one.principal, infer(floats("x", 1)), {}, one.record())
    assert struct.unpack("<f", (await outputs(answer))["p"].data) == (2.0,)
    other = ensemble("mean", {"a": infers(floats("p", 1)), "b": infers(floats("p", 1, 2))})
    with pytest.raises(StepFailed, match="cannot be combined"):
        await other.core.handle(other.principal, infer(floats("x", 1)), {}, other.record())


async def test_outputs_are_joined_along_the_last_dimension() -> None:
    one = ensemble("concat", {"a": infers(floats("p", 1, 2)), "b": infers(floats("p", 3))})
    answer = await one.core.handle(one.principal, infer(floats("x", 1)), {}, one.record())
    assert (await outputs(answer))["p"].data == floats("p", 1, 2, 3).data
    assert (await outputs(answer))["p"].shape == (1, 3)


async def test_the_first_answer_ends_the_others() -> None:
    one = ensemble("first", {"a": infers(floats("p", 1), latency=60.0), "b": infers(floats("p", 2), latency=0.2)})
    started = one.core.clock()
    answer = await one.core.handle(one.principal, infer(floats("x", 1)), {}, one.record())
    assert one.core.clock() - started == pytest.approx(0.2, abs=0.01)
    assert (await outputs(answer))["p"].data == floats("p", 2).data


async def test_texts_vote_too() -> None:
    config = {"members": ["a", "b", "c"], "combine": "vote"}
    one = rig({"ensemble": config}, {"a": chat_fake("no"), "b": chat_fake(" yes"), "c": chat_fake("yes")})
    answer = await one.core.handle(one.principal, chat("whole"), {}, record := one.record())
    assert answer.body is not None
    assert json.loads(answer.body)["choices"][0]["message"]["content"] == " yes"
    assert record.usage is not None
    assert record.usage.completion_tokens == 6
    word = {
        name: Tensor("w", "BYTES", (1,), join_bytes([text])) for name, text in {"a": b"x", "b": b"y", "c": b"y"}.items()
    }
    two = ensemble("vote", {name: infers(tensor) for name, tensor in word.items()})
    made = await two.core.handle(two.principal, infer(floats("x", 1)), {}, two.record())
    assert bytes((await outputs(made))["w"].data) == word["b"].data


async def test_a_client_that_leaves_ends_all_members() -> None:
    one = ensemble("mean", {name: infers(floats("p", 1), latency=60.0) for name in "abc"})
    task = asyncio.create_task(one.core.handle(one.principal, infer(floats("x", 1)), {}, one.record()))
    await asyncio.sleep(1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert [one.adapters[name][0].calls[0].end for name in "abc"] == ["cancelled"] * 3
    assert sent(one, "a")["x"].data == floats("", 1).data


@pytest.mark.parametrize(
    ("parameters", "label"),
    [({}, 2.0), ({"tier": "gold"}, 1.0), ({"tier": "tin"}, 2.0), ({"limit": 7}, 3.0), ({"limit": 2}, 2.0)],
)
async def test_conditions_read_parameters_that_a_client_may_leave_out(parameters: dict[str, Any], label: float) -> None:
    branches = [
        {"if": 'request.tier default "" == "gold"', "model": "a"},
        {"if": "has(request.limit) and request.limit > 5", "model": "c"},
        {"else": True, "model": "b"},
    ]
    fakes = {name: infers(floats("l", value)) for name, value in (("a", 1.0), ("b", 2.0), ("c", 3.0))}
    one = rig({"switch": branches}, fakes, tensors="abc")
    request = infer(floats("x", 1), parameters=parameters)
    answer = await one.core.handle(one.principal, request, {}, one.record())
    assert (await outputs(answer))["l"] == floats("l", label)


@pytest.mark.parametrize(("score", "calls"), [(0.9, 1), (0.1, 0)])
async def test_a_branch_may_answer_with_values_alone(score: float, calls: int) -> None:
    first = {"name": "score", "model": "a", "in": {"x": "request.x"}}
    branches = [{"if": "score.p >= 0.5", "model": "b"}, {"else": True, "out": {"p": "score.p", "x": "request.x"}}]
    fakes = {"a": infers(floats("p", score)), "b": infers(floats("p", 7))}
    one = rig({"steps": [first, {"name": "rest", "switch": branches}]}, fakes, tensors="ab")
    answer = await one.core.handle(one.principal, infer(floats("x", 3)), {}, one.record())
    expected = {"p": floats("p", 7)} if calls else {"p": floats("p", score), "x": floats("x", 3)}
    assert await outputs(answer) == expected
    assert len(one.adapters["b"][0].calls) == calls


def test_values_alone_belong_to_branches() -> None:
    for pipeline in ({"out": {"x": "request.x"}}, {"steps": [{"name": "a", "out": {"x": "request.x"}}]}):
        with pytest.raises(ValidationError, match="does nothing: give exactly one of"):
            PipelineConfig.model_validate(pipeline)


async def test_outputs_of_skipped_steps_are_left_out() -> None:
    steps = [{"name": "one", "model": "a", "on_error": "skip"}, {"name": "two", "model": "b", "on_error": "skip"}]
    out = {"one": "one.y", "two": "two.y"}
    broken = FakeAdapter(Script(fault=BackendError("no")))
    one = rig({"steps": steps, "out": out}, {"a": broken, "b": infers(floats("y", 2))}, tensors="ab")
    answer = await one.core.handle(one.principal, infer(floats("x", 1)), {}, one.record())
    assert await outputs(answer) == {"two": floats("two", 2)}
    assert ("x-headrace-steps", "one=skipped") in answer.headers
    none = rig(
        {"steps": steps, "out": out}, {"a": broken, "b": FakeAdapter(Script(fault=BackendError("no")))}, tensors="ab"
    )
    with pytest.raises(StepFailed, match="was skipped"):
        await none.core.handle(none.principal, infer(floats("x", 1)), {}, none.record())
