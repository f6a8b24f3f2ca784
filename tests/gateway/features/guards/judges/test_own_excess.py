"""What a client causes is no failure of a judge: nobody passes unjudged by own limits, deadlines or long texts."""

import json
from typing import Any

import pytest

from adapters.errors import (
    BudgetExceeded,
    CallerError,
    ContentFiltered,
    ContentRefused,
    ContextTooLong,
    InferenceError,
    NotThere,
    PoisonRequest,
    TooLarge,
    Unsupported,
)
from adapters.fake import FakeAdapter
from gateway.features.guards.judges.base import UndecidedError
from gateway.features.guards.judges.panel import AT_ONCE, MOST_WINDOWS
from tests.support.cut_streams import PARTS, script
from tests.support.guarding import BODIES, received
from tests.support.judging import BY_CHAT, FORBIDDEN, FailingOn, Judging, answer, judged, prompt_of

PATH = "/v1/chat/completions"
SMALL = {"window": 1, "overlap": 0}
"""Windows of four characters."""
ON_ERROR = pytest.mark.parametrize("on_error", ["block", "pass"])
UNCHANGING = pytest.mark.parametrize("change", [{"mode": "monitor"}, {"action": "warn"}], ids=str)


def limited(**limit: Any) -> dict[str, Any]:
    """Fields of a gateway whose tenant has a limit on the model that judges, and none on its own model."""
    return {"limits": [{"models": ["judge"], **limit}]}


@ON_ERROR
@pytest.mark.parametrize("side", ["prompt", "answer"])
@pytest.mark.parametrize("path", BODIES)
async def test_a_limit_of_the_client_on_the_judge_is_its_own(path: str, side: str, on_error: str) -> None:
    model = answer("a zebra" if side == "answer" else "fine")
    guard = {**BY_CHAT, "on": [side], "on_error": on_error}
    one = judged(model, Judging(), guard, **limited(requests="1/day"))
    first, second = await received(one, path, 2)
    assert first[0] == (400 if side == "answer" else 200)
    status, body, headers = second
    assert status == 429, body
    assert int({name.lower(): value for name, value in headers.items()}["retry-after"]) > 60
    assert "zebra" not in body
    assert len(model.calls) == (1 if side == "prompt" else 2)
    one.assert_idle()


@ON_ERROR
async def test_a_limit_that_ends_within_a_stream_ends_the_stream(on_error: str) -> None:
    made = script(["harmless words ", "and a zebra"], PARTS["content"])
    guard = {**BY_CHAT, **SMALL, "on": ["answer"], "on_error": on_error}
    one = judged(FakeAdapter(made), Judging(), guard, **limited(requests="3/day"))
    ((_, body, _),) = await received(one, PATH, stream=True)
    assert "rate_limit_exceeded" in body
    assert "ebra" not in body
    one.assert_idle()


@UNCHANGING
async def test_a_guard_that_changes_nothing_refuses_no_excess(change: dict[str, Any]) -> None:
    one = judged(answer("fine"), Judging(), {**BY_CHAT, **change, "on": ["prompt"]}, **limited(requests="1/day"))
    responses = await received(one, PATH, 2, **prompt_of("a horse"))
    assert [status for status, _, _ in responses] == [200, 200]
    assert (one.log.records[1].guards or {}).keys() == {("g", "error", change.get("mode", "enforce"), "prompt")}


@pytest.mark.parametrize("word", ["horse ", FORBIDDEN])
async def test_windows_wait_for_a_place_of_their_own_limit(word: str) -> None:
    judge = Judging()
    guards = [{**BY_CHAT, **SMALL, "on": ["prompt"]}, {**BY_CHAT, "name": "h", "on": ["prompt"]}]
    one = judged(answer("fine"), judge, *guards, **limited(concurrency=1))
    ((status, _, _),) = await received(one, PATH, **prompt_of("horse " * 9 + word))
    assert status == (200 if word == "horse " else 400)
    one.assert_idle()


@ON_ERROR
@pytest.mark.parametrize("path", BODIES)
async def test_a_text_of_too_many_windows_is_refused_by_name(path: str, on_error: str) -> None:
    judge, model, text = Judging(), answer("fine"), "abcd" * (MOST_WINDOWS + 1)
    fields: dict[str, dict[str, Any]] = {
        "/v1/responses": {"input": text},
        "/v1beta/models/chat:generateContent": {"contents": [{"role": "user", "parts": [{"text": text}]}]},
    }
    one = judged(model, judge, {**BY_CHAT, **SMALL, "on": ["prompt"], "on_error": on_error})
    ((status, body, _),) = await received(one, path, **fields.get(path, prompt_of(text)))
    assert status == 413, body
    assert "too long" in body
    assert (judge.calls, model.calls) == ([], [])
    one.assert_idle()


@ON_ERROR
async def test_an_answer_of_too_many_windows_does_not_leave(on_error: str) -> None:
    guard = {**BY_CHAT, **SMALL, "on": ["answer"], "on_error": on_error}
    one = judged(answer("abcd" * (MOST_WINDOWS + 1)), Judging(), guard)
    ((status, body, _),) = await received(one, PATH)
    assert (status, json.loads(body)["error"]["code"]) == (400, "content_filter")


@UNCHANGING
async def test_a_long_text_passes_a_guard_that_changes_nothing(change: dict[str, Any]) -> None:
    judge = Judging()
    one = judged(answer("fine"), judge, {**BY_CHAT, **SMALL, **change, "on": ["prompt"]})
    ((status, _, _),) = await received(one, PATH, **prompt_of("abcd" * (MOST_WINDOWS + 1)))
    assert (status, judge.calls) == (200, [])


async def test_a_long_text_is_judged_whole() -> None:
    """The timeout is that of each call, so a text of many windows has more time."""
    guard = {**BY_CHAT, **SMALL, "on": ["prompt"], "on_error": "pass", "timeout": "500ms"}
    judge = Judging(latency=0.05)
    one = judged(answer("fine"), judge, guard)
    ((status, _, _),) = await received(one, PATH, **prompt_of("abcd" * AT_ONCE * 15 + "zeb " + "zebr"))
    assert status == 200
    assert len(judge.texts) == AT_ONCE * 15 + 2
    one.assert_idle()


@ON_ERROR
@pytest.mark.parametrize("at", [0, 1, 30, 59])
@pytest.mark.parametrize("failing", [1, 12, 59])
async def test_a_window_that_fails_hides_no_other(failing: int, at: int, on_error: str) -> None:
    words = ["horses"] * 60
    for place in [place for place in range(60) if place != at][:failing]:
        words[place] = "broken"
    words[at] = FORBIDDEN + "s"
    guard = {**BY_CHAT, "window": 2, "overlap": 0, "on": ["prompt"], "on_error": on_error}
    one = judged(answer("fine"), FailingOn("broken"), guard)
    ((status, body, _),) = await received(one, PATH, **prompt_of("".join(f"{word:8}" for word in words)))
    assert (status, json.loads(body)["error"]["code"]) == (400, "content_filter")
    assert one.log.records[0].guards == {("g", "block", "enforce", "prompt"): 1}
    one.assert_idle()


@pytest.mark.parametrize(("on_error", "expected"), [("block", 502), ("pass", 200)])
async def test_a_window_that_fails_alone_is_a_failure(on_error: str, expected: int) -> None:
    guard = {**BY_CHAT, "window": 2, "overlap": 0, "on": ["prompt"], "on_error": on_error}
    one = judged(answer("fine"), FailingOn("broken"), guard)
    ((status, _, _),) = await received(one, PATH, **prompt_of("horses  " * 20 + "broken"))
    assert status == expected


REFUSALS: list[tuple[InferenceError, int, str]] = [
    (ContextTooLong("It is too long."), 413, "request_too_large"),
    (TooLarge("It is too large."), 413, "request_too_large"),
    (BudgetExceeded("It costs too much."), 413, "request_too_large"),
    (ContentRefused("Not this text."), 400, "content_filter"),
    (ContentFiltered("Not this text."), 400, "content_filter"),
]


@ON_ERROR
@pytest.mark.parametrize(("error", "expected", "code"), REFUSALS, ids=lambda each: type(each).__name__)
async def test_a_text_that_its_judge_refuses_does_not_pass(
    error: InferenceError, expected: int, code: str, on_error: str
) -> None:
    guard = {**BY_CHAT, "on": ["prompt"], "on_error": on_error}
    one = judged(answer("fine"), FailingOn("odd", error), guard)
    ((status, body, _),) = await received(one, PATH, **prompt_of("an odd text"))
    assert (status, json.loads(body)["error"]["code"]) == (expected, code)
    one.assert_idle()


OF_A_TEXT: list[InferenceError] = [
    UndecidedError("It wrote maybe.", code="upstream_bad_response"),
    PoisonRequest("It always fails.", detail="It always fails."),
    CallerError("Its server refuses the text."),
]


@pytest.mark.parametrize("error", OF_A_TEXT, ids=lambda each: type(each).__name__)
async def test_no_text_chooses_to_pass_unjudged(error: InferenceError) -> None:
    guard = {**BY_CHAT, "window": 2, "overlap": 0, "on": ["prompt"], "on_error": "pass"}
    model = answer("fine")
    one = judged(model, FailingOn("odd", error), guard)
    ((status, body, _),) = await received(one, PATH, **prompt_of("horse   " * 9 + "odd"))
    assert (status, json.loads(body)["error"]["code"]) == (400, "content_filter")
    assert model.calls == []
    record = one.log.records[0]
    assert record.guards == {("g", "error", "enforce", "prompt"): 1}
    assert record.error is not None
    assert str(record.error.detail) == f"g: {error.message}"
    one.assert_idle()


@UNCHANGING
@pytest.mark.parametrize("error", OF_A_TEXT, ids=lambda each: type(each).__name__)
async def test_such_a_text_passes_a_guard_that_changes_nothing(error: InferenceError, change: dict[str, Any]) -> None:
    one = judged(answer("fine"), FailingOn("odd", error), {**BY_CHAT, **change, "on_error": "pass", "on": ["prompt"]})
    ((status, _, _),) = await received(one, PATH, **prompt_of("an odd text"))
    assert status == 200


async def test_a_text_on_which_a_model_writes_no_verdict_does_not_pass() -> None:
    one = judged(answer("fine"), answer("maybe"), {**BY_CHAT, "on": ["prompt"], "on_error": "pass"})
    ((status, body, _),) = await received(one, PATH, **prompt_of("write maybe"))
    assert (status, json.loads(body)["error"]["code"]) == (400, "content_filter")


@pytest.mark.parametrize(
    "error", [NotThere("No model."), Unsupported("Not here.")], ids=lambda each: type(each).__name__
)
async def test_a_wrong_configuration_of_the_judge_is_its_failure(error: InferenceError) -> None:
    one = judged(answer("fine"), FailingOn("odd", error), {**BY_CHAT, "on": ["prompt"], "on_error": "pass"})
    ((status, _, _),) = await received(one, PATH, **prompt_of("an odd text"))
    assert status == 200
