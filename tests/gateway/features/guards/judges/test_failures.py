"""Guards whose model fails, is slow, or is not prompt_of any more: closed unless the file lets texts pass."""

import json
from typing import Any

import pytest

from gateway.features.guards.judges.base import FAILURES
from tests.support.guarding import BODIES, received
from tests.support.judging import BY_CHAT, Judging, answer, judged, prompt_of

FAIL: dict[str, dict[str, Any]] = {
    "broken": {"judge": {"fails": True}, "guard": {}},
    "slow": {"judge": {"latency": 30.0}, "guard": {"timeout": "50ms"}},
}


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
    one.assert_idle()


async def test_an_answer_without_a_verdict_is_a_failure() -> None:
    one = judged(answer("fine"), answer("perhaps"), {**BY_CHAT, "on": ["prompt"]})
    ((status, body, _),) = await received(one, "/v1/chat/completions", **prompt_of("a zebra"))
    assert (status, json.loads(body)["error"]["code"]) == (502, "guard_failed")
