"""Cascades: which stage answers, what a stream holds, and what is charged."""

import asyncio
import json
from typing import Any

import pytest

from adapters.errors import BackendError, CallerError, ContextTooLong
from adapters.fake import FakeAdapter, Script
from tests.gateway.features.pipelines.rigs import chat_fake, chunks, floats, infer, infers, outputs, rig, sent, text
from tests.support.gateways import Rig, chat

CONFIDENT = "logprob.p10 > -1.0 and finish == stop and not refusal"


def draft(*logprobs: float, finish: str = "stop", text: str = "a draft") -> FakeAdapter:
    """A server of chats that reports log-probabilities."""
    content = [{"token": "x", "logprob": value} for value in logprobs]
    choice = {"index": 0, "message": {"content": text}, "finish_reason": finish, "logprobs": {"content": content}}
    body = json.dumps({"choices": [choice], "usage": {}}).encode()
    return FakeAdapter(Script(chunks=(body,)))


def streamed(*logprobs: float, gap: float = 0.0) -> FakeAdapter:
    """The same as a stream, with one token in each event."""
    events = []
    for index, value in enumerate(logprobs):
        token = {"content": [{"token": "x", "logprob": value}]}
        choice = {"index": 0, "delta": {"content": f"t{index}"}, "finish_reason": None, "logprobs": token}
        events.append(b"data: " + json.dumps({"choices": [choice]}).encode() + b"\n\n")
    last = {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}
    events += [b"data: " + json.dumps(last).encode() + b"\n\n", b"data: [DONE]\n\n"]
    return FakeAdapter(Script(chunks=tuple(events), gap=gap))


def cascade(small: FakeAdapter, large: FakeAdapter | None = None, condition: str = CONFIDENT, **stage: Any) -> Rig:
    stages = [{"model": "small", "accept_if": condition, **stage}, {"model": "large"}]
    return rig({"cascade": stages}, {"small": small, "large": large or chat_fake("the answer")})


@pytest.mark.parametrize(
    ("small", "accepted"),
    [
        (draft(-0.1, -0.2), True),
        (draft(-0.1, -5.0), False),
        (draft(-0.1, finish="length"), False),
        (draft(-0.1, text="I'm sorry, but I can't help with that."), False),
        (draft(), False),
    ],
)
async def test_only_an_acceptable_answer_ends_the_cascade(small: FakeAdapter, accepted: bool) -> None:
    one = cascade(small)
    assert (await text(one) == "the answer") is not accepted
    assert len(one.adapters["large"][0].calls) == (0 if accepted else 1)
    assert sent(one, "small")["logprobs"] is True


async def test_the_client_receives_no_log_probabilities_that_it_did_not_request() -> None:
    one = cascade(draft(-0.1))
    answer = await one.core.handle(one.principal, chat("whole"), {}, one.record())
    assert json.loads(answer.body or b"")["choices"][0]["logprobs"] is None
    answer = await one.core.handle(one.principal, chat("whole", logprobs=True), {}, one.record())
    assert json.loads(answer.body or b"")["choices"][0]["logprobs"]["content"][0]["logprob"] == -0.1


async def test_discarded_drafts_are_charged_and_counted() -> None:
    one = cascade(draft(-9.0))
    answer = await one.core.handle(one.principal, chat("whole"), {}, record := one.record())
    assert record.usage is not None
    assert record.usage.completion_tokens == 4
    assert ("x-headrace-steps", "small=rejected") in answer.headers


async def test_a_failing_stage_is_passed_over_and_a_wrong_request_is_not() -> None:
    for fault in (BackendError("down"), ContextTooLong("too long")):
        one = cascade(FakeAdapter(Script(fault=fault)))
        assert await text(one) == "the answer"
    wrong = cascade(FakeAdapter(Script(fault=CallerError("wrong"))))
    with pytest.raises(CallerError, match="wrong"):
        await text(wrong)
    assert wrong.adapters["large"][0].calls == []


async def test_a_stream_holds_so_many_tokens_and_then_flows() -> None:
    one = cascade(streamed(*[-0.1] * 6, gap=1.0), hold=3)
    started = one.core.clock()
    answer = await one.core.handle(one.principal, chat("whole", stream=True), {}, one.record())
    assert one.core.clock() - started == pytest.approx(2.0)  # the third token
    loop, times, pieces = asyncio.get_running_loop(), [], []
    async for piece in answer:
        times.append(loop.time() - started)
        pieces.append(piece)
    assert [round(time) for time in times] == [2, 2, 2, 3, 4, 5, 6, 7]
    assert b"".join(pieces).count(b"logprob") == b"".join(pieces).count(b'"logprobs":null')
    assert one.adapters["large"][0].calls == []


async def test_a_rejected_stream_is_cancelled_and_not_a_byte_of_it_leaves() -> None:
    events = chunks("real", "answer")
    one = cascade(streamed(-9.0, *[-0.1] * 9, gap=1.0), FakeAdapter(Script(chunks=events)), hold=3)
    answer = await one.core.handle(one.principal, chat("whole", stream=True), {}, record := one.record())
    assert tuple([piece async for piece in answer]) == events
    assert one.adapters["small"][0].calls[0].end == "cancelled"
    assert record.usage is not None
    assert record.usage.completion_tokens == 2 + 3


async def test_outputs_of_tensors_are_accepted_by_name() -> None:
    stages = [{"model": "a", "accept_if": "max(score) >= 0.9"}, {"model": "b"}]
    for score, expected in ((0.95, 0.95), (0.3, 7.0)):
        fakes = {"a": infers(floats("score", 0.1, score)), "b": infers(floats("score", 0.1, 7.0))}
        one = rig({"cascade": stages}, fakes, tensors="ab")
        answer = await one.core.handle(one.principal, infer(floats("x", 1)), {}, one.record())
        assert (await outputs(answer))["score"].data == floats("", 0.1, expected).data


@pytest.mark.parametrize(("verdict", "result"), [("yes", "a draft"), ("no", "the answer"), ("unsure", "the answer")])
async def test_a_validating_model_accepts_or_rejects_a_draft(verdict: str, result: str) -> None:
    checked = {
        "name": "checked",
        "steps": [
            {"name": "draft", "model": "small"},
            {"name": "prompt", "in": {"d": "draft.text"}, "template": "Is this right? {{ d }}"},
            {"name": "check", "model": "validator", "in": {"prompt": "prompt.text"}},
        ],
        "out": {"text": "draft.text", "verdict": "check.text"},
        "accept_if": 'verdict == "yes"',
    }
    fakes = {"small": chat_fake("a draft"), "validator": chat_fake(verdict), "large": chat_fake("the answer")}
    one = rig({"cascade": [checked, {"model": "large"}]}, fakes)
    assert await text(one) == result
    assert sent(one, "validator")["messages"][0]["content"] == "Is this right? a draft"
    assert len(one.adapters["large"][0].calls) == (result == "the answer")
