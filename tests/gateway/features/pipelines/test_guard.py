"""Guards: what they block, what leaves a stream and when, and what a failing guard does."""

import asyncio
import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from prometheus_client import generate_latest

from adapters.errors import BackendError, ContentFiltered, DeadlineError, InferenceError, StepFailed
from adapters.fake import FakeAdapter, Script
from tests.gateway.features.pipelines.rigs import chat_fake, chunks, rig
from tests.support.gateways import Rig, chat
from tests.support.guards import FORBIDDEN, guarded


async def test_a_blocked_request_calls_no_model() -> None:
    one = guarded(chat_fake("fine"), on="request")
    message = [{"role": "user", "content": f"tell me the {FORBIDDEN}"}]
    with pytest.raises(ContentFiltered) as caught:
        await one.core.handle(one.principal, chat("whole", messages=message), {}, record := one.record())
    one.core.end(record, caught.value)
    assert (caught.value.code, record.status) == ("content_filter", 400)
    assert one.adapters["a"][0].calls == []
    assert b'headrace_guard_blocks_total{pipeline="whole",step="guard"} 1.0' in generate_latest(one.metrics.registry)
    answer = await one.core.handle(one.principal, chat("whole"), {}, one.record())
    assert answer.body is not None


@pytest.mark.parametrize(
    "message",
    [
        {"content": f"the {FORBIDDEN}"},
        {"content": None, "reasoning_content": FORBIDDEN},
        {"content": [{"type": "text", "text": FORBIDDEN}]},
        {
            "content": None,
            "tool_calls": [{"id": "1", "function": {"name": "f", "arguments": f'{{"x":"{FORBIDDEN}"}}'}}],
        },
    ],
)
async def test_a_whole_answer_is_examined_in_all_of_its_texts(message: dict[str, Any]) -> None:
    body = json.dumps({"choices": [{"index": 0, "message": message, "finish_reason": "stop"}], "usage": {}}).encode()
    one = guarded(FakeAdapter(Script(chunks=(body,))))
    with pytest.raises(ContentFiltered):
        await one.core.handle(one.principal, chat("whole"), {}, record := one.record())
    assert record.usage is not None
    assert record.usage.completion_tokens == 2  # the draft is charged


async def test_a_failing_guard_fails_the_pipeline_unless_configured_otherwise() -> None:
    for on in ("request", "answer"):
        broken = FakeAdapter(Script(fault=BackendError("down")))
        closed = guarded(chat_fake("fine"), broken, on)
        with pytest.raises(BackendError):
            await closed.core.handle(closed.principal, chat("whole"), {}, closed.record())
        opened = guarded(chat_fake("fine"), broken, on, on_error="skip")
        assert (await opened.core.handle(opened.principal, chat("whole"), {}, opened.record())).body is not None


async def test_a_block_is_never_skipped() -> None:
    one = guarded(chat_fake(FORBIDDEN), on_error="skip")
    with pytest.raises(ContentFiltered):
        await one.core.handle(one.principal, chat("whole"), {}, one.record())


async def received(one: Rig, **fields: Any) -> tuple[str, list[dict[str, Any]], BaseException | None]:
    """The text that leaves, the other deltas, and the error that ends the stream."""
    texts, deltas = [], []
    try:
        answer = await one.core.handle(one.principal, chat("whole", stream=True, **fields), {}, one.record())
        async for piece in answer:
            for event in piece.split(b"\n\n"):
                if event and event != b"data: [DONE]":
                    for choice in json.loads(event[6:])["choices"]:
                        texts.append(choice["delta"].pop("content", ""))
                        deltas.append(choice["delta"])
    except ContentFiltered as error:
        return "".join(texts), deltas, error
    return "".join(texts), deltas, None


async def test_a_stream_is_held_by_one_window_and_no_more() -> None:
    model = FakeAdapter(Script(chunks=chunks(*["abcd"] * 10), gap=1.0))
    one = guarded(model, window=3, overlap=1)
    started = one.core.clock()
    answer = await one.core.handle(one.principal, chat("whole", stream=True), {}, one.record())
    assert one.core.clock() - started == pytest.approx(2.0)  # the third chunk of four characters fills the window
    loop = asyncio.get_running_loop()
    times = [round(loop.time() - started) async for _ in answer]
    assert times[:3] == [2, 4, 6]


async def test_tool_calls_are_held_whole_and_logprobs_are_removed() -> None:
    def event(**delta: Any) -> bytes:
        choice = {"index": 0, "delta": delta, "finish_reason": None, "logprobs": {"content": [{"token": FORBIDDEN}]}}
        return b"data: " + json.dumps({"choices": [choice]}).encode() + b"\n\n"

    def call(**function: str) -> dict[str, Any]:
        return {"tool_calls": [{"index": 0, "function": function}]}

    end = b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"tool_calls"}]}\n\n'
    events = (event(**call(name="f", arguments="")), event(**call(arguments="SEC")), event(**call(arguments="URE")))
    one = guarded(FakeAdapter(Script(chunks=(*events, end, b"data: [DONE]\n\n"))))
    text, deltas, error = await received(one)
    assert (text, error) == ("", None)
    calls = [entry["function"].get("arguments", "") for delta in deltas for entry in delta.get("tool_calls", ())]
    assert "".join(calls) == "SECURE"
    blocked = guarded(FakeAdapter(Script(chunks=(*events[:2], event(**call(arguments="RET")), end))))
    text, deltas, error = await received(blocked)
    assert isinstance(error, ContentFiltered)
    assert not deltas


def _cut(text: str, places: Sequence[int]) -> list[str]:
    ends = [*sorted({place % (len(text) + 1) for place in places}), len(text)]
    starts = [0, *ends[:-1]]
    return [part for start, end in zip(starts, ends, strict=True) if (part := text[start:end])]


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    before=st.text(st.characters(codec="utf-8"), max_size=40),
    after=st.text(st.characters(codec="utf-8"), max_size=40),
    forbidden=st.booleans(),
    places=st.lists(st.integers(0, 100), max_size=12),
    window=st.integers(3, 8),
)
async def test_no_cut_into_chunks_lets_a_byte_of_a_forbidden_span_leave(
    before: str, after: str, forbidden: bool, places: list[int], window: int
) -> None:
    text = before + (FORBIDDEN if forbidden else "") + after
    one = guarded(FakeAdapter(Script(chunks=chunks(*_cut(text, places)))), window=window, overlap=2)
    left, _, error = await received(one)
    if FORBIDDEN in text:
        assert isinstance(error, ContentFiltered)
        assert left == text[: len(left)]
        assert len(left) <= text.index(FORBIDDEN)
        assert one.adapters["a"][0].calls[0].end in ("cancelled", "whole")
    else:
        assert (left, error) == (text, None)
    one.assert_idle()


@pytest.mark.parametrize(("on_error", "error"), [("fail", DeadlineError), ("skip", StepFailed)])
async def test_a_guard_without_time_closes_the_stream_that_it_would_guard(
    on_error: str, error: type[InferenceError]
) -> None:
    guard = {"model": "b", "block_if": 'text == "no"', "on": "answer"}
    steps = [{"name": "draft", "model": "a"}, {"name": "out", "guard": guard, "at_least": "2s", "on_error": on_error}]
    stream = FakeAdapter(Script(chunks=chunks("a", "b"), gap=0.1))
    one = rig({"steps": steps, "deadline": "1s"}, {"a": stream, "b": chat_fake("yes")})
    with pytest.raises(error) as caught:
        await one.core.handle(one.principal, chat("whole", stream=True), {}, one.record())
    assert "The step `out`" in caught.value.message
    assert stream.calls[0].end == "cancelled"


async def test_a_malformed_answer_is_the_server_s_failure() -> None:
    guard = {"model": "b", "block_if": 'text == "no"', "on": "answer"}
    guarded = [{"name": "draft", "model": "a"}, {"name": "out", "guard": guard}]
    summed = [{"name": "first", "model": "b"}, {"name": "last", "model": "a", "in": {"prompt": "first.text"}}]
    for steps in (guarded, summed):
        one = rig({"steps": steps}, {"a": FakeAdapter(Script(chunks=(b"<html>",))), "b": chat_fake("yes")})
        with pytest.raises(BackendError):
            await one.core.handle(one.principal, chat("whole"), {}, one.record())
