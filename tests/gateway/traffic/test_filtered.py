"""Content that a provider refuses, and a route that lets another target answer before the first byte."""

import json
from typing import Any

import pytest

from adapters.base import Answer
from adapters.call import Call
from adapters.errors import BackendError, CallerError, ContentRefused, InferenceError
from adapters.fake import FakeAdapter, Script
from adapters.types import Usage
from adapters.wire import error_table
from adapters.wire.error_table import decode_error
from gateway.traffic.fallback import Fallback, FallbackStep
from gateway.traffic.filtered import verdict_of
from tests.support.gateways import Rig, chat, config
from tests.support.pools import FOREVER

AZURE = {
    "error": {
        "message": "The response was filtered due to the prompt triggering Azure OpenAI's content management policy.",
        "type": None, "param": "prompt", "code": "content_filter", "status": 400,
        "innererror": {"code": "ResponsibleAIPolicyViolation"},
    }
}  # fmt: skip
REFUSALS: list[tuple[int, dict[str, Any]]] = [
    (400, AZURE),
    (400, {"error": {"message": "Your request was rejected by our safety system.", "code": "moderation_blocked"}}),
    (400, {"error": {"message": "Invalid prompt: your prompt was flagged.", "code": "invalid_prompt"}}),
    (403, {"error": {"message": "Input was flagged", "code": 403, "metadata": {"reasons": ["violence"]}}}),
    (451, {"error": {"message": "Prohibited content"}}),
]
OTHERS: list[tuple[int, dict[str, Any]]] = [
    (400, {"error": {"message": "temperature must be at most 2", "code": "invalid_value"}}),
    (403, {"error": {"message": "Your country is not supported", "code": "unsupported_country"}}),
    (422, {"error": {"message": "messages is required"}}),
]


@pytest.mark.parametrize(("status", "body"), REFUSALS)
def test_a_refusal_of_content_is_an_error_of_its_own(status: int, body: dict[str, Any]) -> None:
    error = error_table.judged(status, decode_error(json.dumps(body).encode()))
    assert isinstance(error, ContentRefused)
    assert not error.retryable
    assert not error.blames_endpoint


@pytest.mark.parametrize(("status", "body"), OTHERS)
def test_other_errors_of_the_client_are_none(status: int, body: dict[str, Any]) -> None:
    assert not isinstance(error_table.judged(status, decode_error(json.dumps(body).encode())), ContentRefused)


def choice(finish: str | None, **delta: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}


CHAT_OPENS = [{"choices": [], "prompt_filter_results": []}, choice(None, role="assistant", content="")]
MESSAGE_OPENS = [
    {"type": "message_start", "message": {"role": "assistant", "content": [], "usage": {"input_tokens": 5}}},
    {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
    {"type": "ping"},
    {"type": "content_block_stop", "index": 0},
]
RESPONSE_OPENS = [{"type": "response.created", "response": {"object": "response", "output": []}}]
INCOMPLETE = {"object": "response", "output": [], "incomplete_details": {"reason": "content_filter"}}
FILTERED = [
    [*CHAT_OPENS, choice("content_filter")],
    [*MESSAGE_OPENS, {"type": "message_delta", "delta": {"stop_reason": "refusal"}, "usage": {"output_tokens": 0}}],
    [*RESPONSE_OPENS, {"type": "response.incomplete", "response": INCOMPLETE}],
]
WRITTEN = [
    [*CHAT_OPENS, choice(None, content="No"), choice("content_filter")],
    [*CHAT_OPENS, choice(None, reasoning_content="Hm"), choice("content_filter")],
    [*CHAT_OPENS, choice(None, tool_calls=[{"index": 0}]), choice("tool_calls")],
    [*CHAT_OPENS, choice("stop")],
    [*MESSAGE_OPENS, {"type": "content_block_delta", "delta": {"type": "text_delta", "text": "No"}},
     {"type": "message_delta", "delta": {"stop_reason": "refusal"}}],
    [*RESPONSE_OPENS, {"type": "response.output_text.delta", "delta": "No"},
     {"type": "response.incomplete", "response": INCOMPLETE}],
    [{"choices": "odd"}, {"type": 5}],
]  # fmt: skip
WHOLE = [
    ({"choices": [{"message": {"content": None}, "finish_reason": "content_filter"}]}, "filtered"),
    ({"choices": [{"message": {"content": "No"}, "finish_reason": "content_filter"}]}, "written"),
    ({"type": "message", "content": [], "stop_reason": "refusal"}, "filtered"),
    ({"type": "message", "content": [{"type": "text", "text": "Hi"}], "stop_reason": "end_turn"}, "written"),
    (INCOMPLETE, "filtered"),
    ({"object": "response", "output": [{"content": [{"text": "Hi"}]}], "incomplete_details": None}, "written"),
]


def streamed(events: list[dict[str, Any]], usage: int = 7) -> FakeAdapter:
    chunks = tuple(b"data: " + json.dumps(event).encode() + b"\n\n" for event in events)
    return FakeAdapter(Script(chunks=chunks, usage=Usage(usage, 1, exact=True)))


async def answer_of(first: FakeAdapter, spare: FakeAdapter, *on: Any, stream: bool = True) -> Answer:
    return await Fallback(first, [FallbackStep(frozenset(on), spare)]).call(chat(stream=stream), Call(FOREVER))


@pytest.mark.parametrize("events", FILTERED)
async def test_a_stream_that_a_filter_ends_before_its_first_text_falls_back(events: list[dict[str, Any]]) -> None:
    first, spare = streamed(events), streamed([choice("stop", content="fine")])
    answer = await answer_of(first, spare, "filtered")
    assert b"fine" in b"".join([piece async for piece in answer])
    assert [len(one.calls) for one in (first, spare)] == [1, 1]
    assert first.in_flight == 0
    same = await answer_of(streamed(events), spare, "backend", "capacity")
    assert b"fine" not in b"".join([piece async for piece in same])  # only a route that opts in


@pytest.mark.parametrize("events", WRITTEN)
async def test_a_stream_that_has_begun_stays_byte_for_byte(events: list[dict[str, Any]]) -> None:
    plain = await answer_of(streamed(events), FakeAdapter(), "backend")
    watched = await answer_of(streamed(events), spare := FakeAdapter(), "filtered")
    assert [piece async for piece in watched] == [piece async for piece in plain]
    assert not spare.calls


@pytest.mark.parametrize(("body", "verdict"), WHOLE)
async def test_whole_answers_have_their_verdict(body: dict[str, Any], verdict: str) -> None:
    assert verdict_of(body) == verdict
    first = FakeAdapter(Script(chunks=(json.dumps(body).encode(),)))
    answer = await answer_of(first, FakeAdapter(Script(chunks=(b"{}",))), "filtered", stream=False)
    assert (answer.body == b"{}") == (verdict == "filtered")


async def test_a_stream_that_breaks_before_its_first_text_may_fall_back_too() -> None:
    broken = FakeAdapter(Script(chunks=(b": hello\n\n",), fault=BackendError("x"), fault_after=1))
    with pytest.raises(BackendError):
        await answer_of(broken, spare := FakeAdapter(), "filtered")
    assert not spare.calls
    await answer_of(
        FakeAdapter(Script(chunks=(b": hello\n\n",), fault=BackendError("x"), fault_after=1)),
        spare,
        "filtered",
        "backend",
    )
    assert len(spare.calls) == 1


@pytest.mark.parametrize("kind", ["error", "answer"])
async def test_twelve_refused_requests_are_sent_once_each_and_open_no_breaker(kind: str) -> None:
    """The client pays for the answer that it gets, and for no other."""
    refused = [*CHAT_OPENS, choice("content_filter")]
    script = (
        Script(fault=ContentRefused("no"))
        if kind == "error"
        else Script(chunks=_encoded(refused), usage=Usage(9, 1, exact=True))
    )
    main = FakeAdapter(script)
    spare = FakeAdapter(Script(chunks=_encoded([choice("stop", content="fine")]), usage=Usage(5, 3, exact=True)))
    route = {"to": "main", "fallback": [{"pool": "spare", "on": ["filtered"]}]}
    pools = [{"name": name, "endpoints": [f"http://127.0.0.1:{port}"]} for name, port in (("main", 9), ("spare", 10))]
    rig = Rig(config(pools=pools, models=[{"name": "chat", "routes": [route]}]), {"main": [main], "spare": [spare]})
    for _ in range(12):
        answer = await rig.core.handle(rig.principal, chat(stream=True), {}, rig.record())
        assert b"fine" in b"".join([piece async for piece in answer])
    assert (len(main.calls), len(spare.calls)) == (12, 12)
    assert rig.endpoints["main"][0].breaker.state(0.0) == "closed"
    assert rig.endpoints["main"][0].in_flight == 0
    used = [(record.usage.prompt_tokens, record.usage.completion_tokens) for record in rig.log.records if record.usage]
    assert used == [(5, 3)] * 12


def _encoded(events: list[dict[str, Any]]) -> tuple[bytes, ...]:
    return tuple(b"data: " + json.dumps(event).encode() + b"\n\n" for event in events)


async def test_an_error_of_the_caller_never_falls_back() -> None:
    spare = FakeAdapter()
    with pytest.raises(InferenceError):
        await answer_of(FakeAdapter(Script(fault=CallerError("x"))), spare, "filtered")
    assert not spare.calls
