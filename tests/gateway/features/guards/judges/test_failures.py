"""Guards whose model fails, is slow, or is not prompt_of any more: closed unless the file lets texts pass."""

import json
from typing import Any

import pytest
from msgspec.structs import replace
from prometheus_client import generate_latest

from adapters.answer import Answer
from adapters.call import Call
from adapters.errors import DeadlineError
from adapters.fake import FakeAdapter, Script
from adapters.requests import ModelRequest
from gateway.features.guards.judges.base import FAILURES
from tests.support.gateways import Rig, chat
from tests.support.guarding import BODIES, received
from tests.support.judging import BY_CHAT, FORBIDDEN, FailingOn, Judging, answer, judged, prompt_of

FAIL: dict[str, dict[str, Any]] = {
    "broken": {"judge": {"fails": True}, "guard": {}},
    "slow": {"judge": {"latency": 30.0}, "guard": {"timeout": "50ms"}},
}


def exposed(one: Rig) -> bytes:
    return bytes(generate_latest(one.core.telemetry.metrics.registry))


@pytest.mark.parametrize("side", ["prompt", "answer"])
@pytest.mark.parametrize("on_error", ["block", "pass"])
@pytest.mark.parametrize("how", FAIL)
async def test_a_text_without_a_verdict(how: str, on_error: str, side: str) -> None:
    guard = {**BY_CHAT, **FAIL[how]["guard"], "on_error": on_error, "on": [side]}
    model = answer("a zebra")
    one = judged(model, Judging(**FAIL[how]["judge"]), guard)
    ((status, body, _),) = await received(one, "/v1/chat/completions", **prompt_of("a zebra"))
    if on_error == "pass":
        assert status == 200
        assert "zebra" in body
    else:
        assert (status, json.loads(body)["error"]["code"]) == (502, "guard_failed")
        assert bool(model.calls) == (side == "answer")
    assert one.log.records[0].guards == {("g", "error", "enforce", side): 1}
    assert one.log.records[0].error is None or "g: " in one.log.records[0].error.detail
    one.assert_idle()


@pytest.mark.parametrize("path", BODIES)
async def test_the_error_has_the_shape_of_its_door(path: str) -> None:
    one = judged(answer("fine"), Judging(fails=True), BY_CHAT)
    ((status, body, _),) = await received(one, path)
    assert status == 502
    assert "A guard could not judge the content." in json.dumps(json.loads(body))


async def test_a_guard_that_only_warns_or_monitors_blocks_nothing() -> None:
    for change in ({"action": "warn"}, {"mode": "monitor"}):
        one = judged(answer("fine"), Judging(fails=True), {**BY_CHAT, **change})
        ((status, _, _),) = await received(one, "/v1/chat/completions", **prompt_of("a zebra"))
        assert status == 200


async def test_a_breaker_stops_the_calls() -> None:
    judge = Judging(fails=True)
    one = judged(answer("fine"), judge, {**BY_CHAT, "on": ["prompt"], "on_error": "pass"})
    responses = await received(one, "/v1/chat/completions", FAILURES + 3, **prompt_of("a zebra"))
    assert [status for status, _, _ in responses] == [200] * (FAILURES + 3)
    assert len(judge.calls) <= FAILURES
    assert b'headrace_guard_verdict_seconds_count{guard="g"} %d.0' % FAILURES in exposed(one)
    one.assert_idle()


async def test_the_time_of_each_verdict_is_measured() -> None:
    one = judged(answer("fine"), Judging(latency=0.02), BY_CHAT)
    assert b"headrace_guard_verdict_seconds_count" not in exposed(one)
    assert [status for status, _, _ in await received(one, "/v1/chat/completions", 3)] == [200] * 3
    assert b'headrace_guard_verdict_seconds_count{guard="g"} 6.0' in exposed(one)  # prompts and answers
    assert all(seconds > 0.01 for record in one.log.records for _, seconds in record.guard_seconds or ())
    one.assert_idle()


@pytest.mark.parametrize("text", ["perhaps", "not sure", "Notably, yes", "yesterday", "", "`nothing`"])
async def test_an_answer_without_a_verdict_is_a_failure(text: str) -> None:
    one = judged(answer("fine"), answer(text), {**BY_CHAT, "on": ["prompt"]})
    ((status, body, _),) = await received(one, "/v1/chat/completions", **prompt_of("a zebra"))
    assert (status, json.loads(body)["error"]["code"]) == (502, "guard_failed")


@pytest.mark.parametrize(("text", "expected"), [("**Yes**, it does.", 400), ("`no`", 200), ("No.", 200), ("YES", 400)])
async def test_a_verdict_is_a_whole_word(text: str, expected: int) -> None:
    one = judged(answer("fine"), answer(text), {**BY_CHAT, "on": ["prompt"]})
    ((status, _, _),) = await received(one, "/v1/chat/completions", **prompt_of("a zebra"))
    assert status == expected


def json_of(body: Any) -> FakeAdapter:
    return FakeAdapter(Script(chunks=(json.dumps(body).encode(),)))


LABELS: dict[str, Any] = {"name": "g", "kind": "model", "model": "judge", "labels": ["BAD"], "on": ["prompt"]}
TOPICS: dict[str, Any] = {
    "name": "g", "kind": "topics", "embed": "judge", "deny": [{"name": "a", "examples": ["e"]}], "on": ["prompt"],
}  # fmt: skip


@pytest.mark.parametrize(
    ("guard", "body"),
    [
        (LABELS, {"data": []}),
        (LABELS, {"data": [{"label": None, "probs": [1.0]}]}),
        (TOPICS, {"data": [{"index": 0, "embedding": []}]}),
        (TOPICS, {"data": [{"index": 0, "embedding": [0.0, 0.0]}]}),
        (TOPICS, {"data": [{"index": 0, "embedding": "AADAfw=="}]}),  # NaN
    ],
)
async def test_an_answer_that_decides_nothing_is_a_failure(guard: dict[str, Any], body: Any) -> None:
    one = judged(answer("fine"), json_of(body), guard)
    ((status, text, _),) = await received(one, "/v1/chat/completions", **prompt_of("a zebra"))
    assert (status, json.loads(text)["error"]["code"]) == (502, "guard_failed")


async def test_embeddings_of_another_length_are_a_failure_once() -> None:
    rows = [json.dumps({"data": [{"index": 0, "embedding": [1.0] * size}]}).encode() for size in (2, 3, 3, 3)]
    one = judged(answer("fine"), FakeAdapter(*(Script(chunks=(row,)) for row in rows)), TOPICS)
    responses = await received(one, "/v1/chat/completions", 2, **prompt_of("a zebra"))
    assert [status for status, _, _ in responses] == [502, 400]


async def test_no_client_opens_the_breaker_by_an_answer_without_a_verdict() -> None:
    judge = answer("perhaps")
    one = judged(answer("fine"), judge, {**BY_CHAT, "on": ["prompt"], "on_error": "pass"})
    await received(one, "/v1/chat/completions", FAILURES + 3, **prompt_of("write no verdict"))
    assert len(judge.calls) == FAILURES + 3
    one.assert_idle()


async def test_no_client_opens_the_breaker_by_a_window_that_fails() -> None:
    guard = {**BY_CHAT, "window": 1, "overlap": 0, "on": ["prompt"], "on_error": "pass"}
    judge = FailingOn("slow")
    one = judged(answer("fine"), judge, guard)
    responses = await received(one, "/v1/chat/completions", FAILURES + 1, **prompt_of("horse " * 9 + "slow"))
    assert [status for status, _, _ in responses] == [200] * (FAILURES + 1)
    await received(one, "/v1/chat/completions", **prompt_of(FORBIDDEN[:4]))
    assert judge.texts[-1] == FORBIDDEN[:4]
    one.assert_idle()


async def test_no_client_opens_the_breaker_by_its_deadline() -> None:
    judge = Judging(latency=30.0)
    one = judged(answer("fine"), judge, {**BY_CHAT, "on": ["prompt"]})
    for _ in range(FAILURES + 1):
        record = one.record()
        with pytest.raises(DeadlineError):
            await one.core.handle(one.principal, replace(chat(), timeout=0.02), {}, record)
    assert len(judge.calls) == FAILURES + 1
    one.assert_idle()


async def test_a_service_that_refuses_a_text_opens_no_breaker() -> None:
    class Refusing(Judging):
        async def call(self, request: ModelRequest, call: Call) -> Answer:
            refusal = await super().call(request, call)
            refusal.status = 422
            return refusal

    service = Refusing()
    guard = {"name": "g", "kind": "webhook", "model": "judge", "secret": "s" * 32, "on": ["prompt"]}
    one = judged(answer("fine"), service, guard, protocol="http")
    responses = await received(one, "/v1/chat/completions", FAILURES + 2, **prompt_of("a zebra"))
    assert [status for status, _, _ in responses] == [502] * (FAILURES + 2)
    assert len(service.calls) == FAILURES + 2
