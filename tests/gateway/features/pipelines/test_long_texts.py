"""Long texts in the values of pipelines: no turn of the event loop is long, for any size and alphabet.

A step reads at most 4 Mi characters; longer texts are forwarded, but not read.
"""

from math import inf
from typing import Any

import pytest

from adapters.errors import CallerError, InferenceError, StepFailed
from adapters.requests import ModelRequest
from gateway.features.pipelines.values import MAX_TEXT
from tests.gateway.features.pipelines.rigs import chat_fake, rig
from tests.support.gateways import Rig, chat
from tests.support.turns import Turns, most_seconds

MiB = 1024 * 1024
ALPHABETS = {"ascii": "needl ", "wide": "é世 ", "astral": "😀a"}
TEXTS = [
    pytest.param(size, alphabet, marks=[] if often else [pytest.mark.nightly])
    for size, alphabets in ((MiB, {"ascii", "astral"}), (6 * MiB, set()), (30 * MiB, {"wide"}))
    for alphabet in ALPHABETS
    for often in (alphabet in alphabets,)
]
"""Bytes of UTF-8: the largest is nearly the largest legal body. A letter has one, two or four bytes in memory; every
night, each size has each."""
READ = {"name": "f", "model": "a"}


def switched(condition: str) -> dict[str, Any]:
    return {"switch": [{"if": condition, "model": "a"}, {"else": True, "model": "b"}]}


def rendered(template: str) -> dict[str, Any]:
    step = {"name": "t", "in": {"v": "request.text"}, "template": template}
    return {"steps": [step, {**READ, "in": {"prompt": "t.text"}}]}


def guarded(on: str) -> dict[str, Any]:
    guard = {"name": "g", "guard": {"model": "b", "block_if": 'text == "unsafe"', "on": on, "window": 16_384}}
    return {"steps": [guard, READ] if on == "request" else [READ, guard]}


OF_REQUESTS: dict[str, Any] = {
    "forwarded": {"steps": [READ]},
    "contains": switched('contains(request.text, "needle")'),
    "matches": switched('matches(request.text, "nee+dle")'),
    "lower": switched('lower(request.text) == "needle"'),
    "equal": switched('request.text == "needle" or request.text in ["a", "b"]'),
    "length": switched("len(request.text) > 5"),
    "another field": switched('request.user default "x" == "y"'),
    "template of length": rendered("{{ v | length }}"),
    "template": rendered("Q: {{ v }}"),
    "template in upper case": rendered("{{ v | upper | truncate(9) }}"),
    "prompt": {"steps": [{**READ, "in": {"prompt": "request.text"}}]},
    "system": {"steps": [{**READ, "in": {"system": "request.text"}}]},
    "guard": guarded("request"),
}
OF_ANSWERS: dict[str, Any] = {
    "read": {"steps": [READ, {"name": "l", "model": "b", "in": {"prompt": "f.text"}}]},
    "guard": guarded("answer"),
    "accepted": {"cascade": [{"model": "a", "accept_if": 'contains(text, "q")'}, {"model": "b"}]},
    "vote": {"ensemble": {"members": ["a", "b", "c"], "combine": "vote", "need": 2}},
    "concat": {"ensemble": {"members": ["a", "b", "c"], "combine": "concat"}},
    "agree": {"agree": {"of": ["a", "b", "c"]}},
    "agree by edit": {"agree": {"of": ["a", "b", "c"], "by": "edit"}},
    "agree by number": {"agree": {"of": ["a", "b", "c"], "by": "number"}},
    "judge": {"judge": {"of": ["a", "c"], "model": "b"}},
}


async def ended(graph: dict[str, Any], answer: str, **fields: Any) -> InferenceError | None:
    """Send one request, and check the turns until its answer has ended. The error, if it has one.

    The shortest of three longest turns counts: while other processes use the memory, a copy of 31 MiB takes some times
    as long.
    """
    one = rig(graph, {"a": chat_fake(answer), "b": chat_fake("safe"), "c": chat_fake(f"{answer}x")})
    await one.core.handle(one.principal, chat("b"), {}, one.record())  # what is imported once
    longest, failure = list[float](), None
    while len(longest) < 3 and min(longest, default=inf) >= most_seconds():
        turns, failure = await answered(one, chat("whole", **fields))
        longest.append(turns.longest)
    assert min(longest) < most_seconds()
    return failure


async def answered(one: Rig, request: ModelRequest) -> tuple[Turns, InferenceError | None]:
    """The turns of a request, and its error."""
    failure = None
    with Turns() as turns:
        try:
            async for _ in await one.core.handle(one.principal, request, {}, one.record()):
                pass
        except InferenceError as error:
            failure = error
    return turns, failure


@pytest.mark.processes
@pytest.mark.parametrize(("size", "alphabet"), TEXTS)
@pytest.mark.parametrize("kind", OF_REQUESTS)
async def test_no_turn_reads_a_long_request(kind: str, size: int, alphabet: str) -> None:
    letters = ALPHABETS[alphabet]
    text = letters * (size // len(letters.encode()))
    failure = await ended(OF_REQUESTS[kind], "short", messages=[{"role": "user", "content": text}])
    if kind in ("forwarded", "another field"):
        assert failure is None
    elif len(text) > MAX_TEXT:
        assert isinstance(failure, CallerError)
        assert f"{MAX_TEXT} at most are read" in failure.message
    elif kind in ("prompt", "system", "length", "template of length"):
        assert failure is None


@pytest.mark.processes
@pytest.mark.parametrize(("size", "alphabet"), TEXTS)
@pytest.mark.parametrize("kind", OF_ANSWERS)
async def test_no_turn_reads_a_long_answer(kind: str, size: int, alphabet: str) -> None:
    letters = ALPHABETS[alphabet]
    text = letters * (size // len(letters.encode()))
    failure = await ended(OF_ANSWERS[kind], text)
    if kind == "read" and len(text) > MAX_TEXT:
        assert isinstance(failure, StepFailed)
        assert f"{MAX_TEXT} at most are read" in failure.message
    elif kind == "read":
        assert failure is None
