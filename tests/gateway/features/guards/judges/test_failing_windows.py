"""Recognisers that fail at several windows of a prompt in the same moment: one error leaves, always the same one."""

import asyncio
import json
from typing import Any

import pytest

from adapters.answer import Answer
from adapters.errors import BackendError, DeadlineError, InferenceError, LimitExceeded, UpstreamTimeout
from adapters.requests import AppRequest, ModelRequest
from gateway.features.guards.judges.base import GuardCalls
from gateway.features.guards.judges.recognisers import WINDOW
from tests.support.guarding import received
from tests.support.judging import prompt_of
from tests.support.recognising import RECOGNISER, Echo, Recognising, recognising

PATH = "/v1/chat/completions"
LATE, BROKEN, SLOW = DeadlineError("It is late."), BackendError("It is broken."), UpstreamTimeout("It is slow.")
OVER = LimitExceeded("Too many requests.", limit="requests", retry_after=9.0)
PAIRS: list[tuple[Exception, Exception, bool, int, str]] = [
    (LATE, BROKEN, False, 502, "guard_failed"),
    (LATE, BROKEN, True, 504, "deadline_exceeded"),
    (TimeoutError(), BROKEN, False, 502, "guard_failed"),
    (SLOW, BROKEN, False, 502, "guard_failed"),
    (LATE, LATE, False, 502, "guard_failed"),
    (BROKEN, OVER, False, 429, "rate_limit_exceeded"),
    (LATE, OVER, True, 429, "rate_limit_exceeded"),
]
"""Errors of two windows, whether the request's own deadline has passed, and the status and the code of the answer."""


def failing(monkeypatch: pytest.MonkeyPatch, errors: dict[str, Exception], *, late: bool = False) -> None:
    """Let the window that begins with a letter fail with its error, when the last window has come."""
    waiting, gate = list[str](), asyncio.Event()

    async def call(_: GuardCalls, model: str, request: ModelRequest, timeout: float) -> Answer:
        assert isinstance(request, AppRequest)
        waiting.append(letter := json.loads(request.body)["text"][0])
        if len(waiting) == len(errors):
            gate.set()
        await gate.wait()
        raise errors[letter]

    monkeypatch.setattr(GuardCalls, "call", call)
    monkeypatch.setattr(GuardCalls, "are_late", late)


@pytest.mark.parametrize(("first", "second", "late", "status", "code"), PAIRS)
@pytest.mark.parametrize("reverse", [False, True])
async def test_one_of_two_errors_leaves(
    monkeypatch: pytest.MonkeyPatch,
    first: InferenceError,
    second: InferenceError,
    late: bool,
    status: int,
    code: str,
    reverse: bool,
) -> None:
    a, b = (second, first) if reverse else (first, second)
    failing(monkeypatch, {"a": a, "b": b}, late=late)
    model = Echo()
    one = recognising(Recognising(), model)
    ((got, body, _),) = await received(one, PATH, **long_prompt())
    assert (got, json.loads(body)["error"]["code"]) == (status, code), body
    assert not model.calls
    details = one.log.records[0].error and one.log.records[0].error.detail
    assert BROKEN not in (a, b) or code != "guard_failed" or "broken" in str(details)
    one.assert_idle()


@pytest.mark.parametrize("change", [{"mode": "monitor"}, {"recogniser": {"model": "names", "on_error": "pass"}}])
async def test_two_errors_let_a_prompt_pass(monkeypatch: pytest.MonkeyPatch, change: dict[str, Any]) -> None:
    failing(monkeypatch, {"a": LATE, "b": BROKEN})
    one = recognising(Recognising(), Echo(), {**RECOGNISER, **change})
    ((status, body, _),) = await received(one, PATH, **long_prompt())
    assert status == 200, body
    one.assert_idle()


def long_prompt() -> dict[str, Any]:
    """A prompt of two windows."""
    texts = [letter * WINDOW for letter in "ab"]
    return {"messages": [each for text in texts for each in prompt_of(text)["messages"]]}
