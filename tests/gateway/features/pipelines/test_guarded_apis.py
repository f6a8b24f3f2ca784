"""A guard on every API of texts, for every part of an answer in which a text can leave, over real sockets."""

import json
from collections.abc import Iterator
from typing import Any

import aiohttp
import pytest

from adapters.fake import FakeAdapter, Script
from tests.support.cut_streams import PARTS, cuts_of, event, events_of, script, texts_of
from tests.support.gateways import listening
from tests.support.guards import BODIES, CHAT, FORBIDDEN, guarded

BEFORE = "this is fine, so it may go, "
AFTER = ", as a zebra"
OFFERED = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}


async def streamed(path: str, scripts: list[Script], **fields: Any) -> list[str]:
    """Send a request for each script; return the bodies of the responses."""
    one = guarded(FakeAdapter(*scripts), window=4, overlap=2)
    bodies = []
    async with listening(one) as url, aiohttp.ClientSession() as http:
        http.headers["authorization"] = f"Bearer {one.key.plaintext}"
        body = {"model": "whole", "stream": True, **BODIES.get(path, {}), **fields}
        for _ in scripts:
            async with http.post(url + path, json=body) as response:
                bodies.append(await response.text())
        await one.until_idle()
    ends = {call.end for call in one.adapters["a"][0].calls}
    assert ends <= {"cancelled", "whole"}
    return bodies


def assert_blocked(received: str) -> None:
    """No letter of the forbidden word, and no later text, was sent."""
    assert "content_filter" in received or "blocked" in received
    assert not [part for part in ("SE", "EC", "CR", "RE", "ET", "zebra") if part in received]


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("path", BODIES)
async def test_no_cut_lets_a_byte_of_a_forbidden_span_leave(path: str, part: str) -> None:
    text = BEFORE + FORBIDDEN + AFTER
    if part == "arguments":
        text = json.dumps({"q": text})
    cuts = list(cuts_of(text, seed=len(path) + len(part)))
    for pieces, received in zip(cuts, await streamed(path, [script(cut, PARTS[part]) for cut in cuts]), strict=True):
        assert_blocked(received)
        if part == "content" and len(pieces) > len(text) / 8:  # several pieces come before the word
            assert "this is" in "".join(text for each in events_of(received) for text in texts_of(each))
        elif part not in ("content", "content_parts", "reasoning", "reasoning_content", "refusal"):
            assert "fine" not in received  # calls are held whole


@pytest.mark.parametrize("part", ["content", "content_parts", "reasoning_content", "arguments"])
@pytest.mark.parametrize("path", BODIES)
async def test_every_byte_of_a_harmless_answer_leaves(path: str, part: str) -> None:
    text = BEFORE + "the word" + AFTER
    if part == "arguments":
        text = json.dumps({"q": text})
    for received in await streamed(path, [script(pieces, PARTS[part]) for pieces in cuts_of(text, seed=7)]):
        assert "blocked" not in received
        left = [json.dumps(each) for each in events_of(received)]
        joined = "".join(delta for each in events_of(received) for delta in _deltas(each, part))
        assert text in joined, left


def _deltas(value: Any, part: str) -> Iterator[str]:
    """The texts of one part in the events of any API."""
    names = {
        "content": {"content", "text", "delta"},
        "content_parts": {"content", "text", "delta"},
        "reasoning_content": {"reasoning_content", "thinking", "delta", "text"},
        "arguments": {"arguments", "partial_json", "delta"},
    }
    if isinstance(value, dict):
        for name, each in value.items():
            if isinstance(each, str) and name in names[part]:
                yield each
            else:
                yield from _deltas(each, part)
    elif isinstance(value, list):
        for each in value:
            yield from _deltas(each, part)


async def test_each_choice_has_windows_of_its_own() -> None:
    """The word is in the second choice only, also where the two choices join to it."""
    path = "/v1/chat/completions"
    for received in await streamed(
        path, [script(pieces, PARTS["content"], index=1) for pieces in cuts_of(BEFORE + FORBIDDEN + AFTER, 3)], n=2
    ):
        assert_blocked(received)
    half = FORBIDDEN[:3], FORBIDDEN[3:]
    ends = [event({}, index, "stop") for index in (0, 1)]
    both = Script(chunks=(event({"content": half[0]}), event({"content": half[1]}, 1), *ends, b"data: [DONE]\n\n"))
    (received,) = await streamed(path, [both], n=2)
    choices = {choice["index"]: choice for each in events_of(received) for choice in each["choices"]}
    assert len(choices) == 2
    assert [half[0] in received, half[1] in received] == [True, True]


async def test_tokens_of_log_probabilities_do_not_leave() -> None:
    """The alternatives of a token are no part of the text."""
    entry = {"token": "fine", "logprob": -1, "top_logprobs": [{"token": FORBIDDEN, "logprob": -2}]}
    scripts = [
        script(pieces, PARTS["content"], logprobs={"content": [entry], "refusal": [entry]})
        for pieces in cuts_of(BEFORE, 5)
    ]
    for received in await streamed("/v1/chat/completions", scripts, logprobs=True, top_logprobs=2):
        assert FORBIDDEN not in received
        assert BEFORE in "".join(text for each in events_of(received) for text in texts_of(each))


def completion(text: str, finish: str | None = None) -> bytes:
    logprobs = {"tokens": [FORBIDDEN], "token_logprobs": [-1.0], "top_logprobs": [{FORBIDDEN: -1.0}]}
    choice = {"index": 0, "text": text, "finish_reason": finish, "logprobs": logprobs}
    return b"data: " + json.dumps({"choices": [choice]}).encode() + b"\n\n"


@pytest.mark.parametrize("forbidden", [True, False])
async def test_completions_with_echo_and_log_probabilities(forbidden: bool) -> None:
    """With `echo`, the prompt is a part of the answer and guarded like the rest."""
    text = BEFORE + (FORBIDDEN if forbidden else "harmless") + AFTER
    done = (completion("", "stop"), b"data: [DONE]\n\n")
    scripts = [Script(chunks=(*(completion(piece) for piece in pieces), *done)) for pieces in cuts_of(text, 9)]
    fields = {"prompt": BEFORE, "echo": True, "logprobs": 1}
    for received in await streamed("/v1/completions", scripts, **fields):
        assert FORBIDDEN not in received
        if forbidden:
            assert_blocked(received)
        else:
            assert "".join(each["choices"][0]["text"] for each in events_of(received)) == text


@pytest.mark.parametrize("include", [True, False])
async def test_the_usage_of_a_guarded_stream(include: bool) -> None:
    options = {"stream_options": {"include_usage": include}}
    (received,) = await streamed("/v1/chat/completions", [script([BEFORE], PARTS["content"])], **options)
    usages = [each["usage"] for each in events_of(received) if each.get("usage")]
    assert [usage["completion_tokens"] for usage in usages] == [7]
    assert received.endswith("data: [DONE]\n\n")


WHOLE = {"index": 0, "message": {"role": "assistant", "content": "fine"}, "finish_reason": "stop"}


@pytest.mark.parametrize(
    ("fields", "choice"),
    [
        ({"__verbose": {"content": FORBIDDEN}}, {}),
        ({}, {"logprobs": {"content": [{"token": "fine", "top_logprobs": [{"token": FORBIDDEN}]}]}}),
        (
            {"prompt_logprobs": [{"1": {"decoded_token": FORBIDDEN}}]},
            {"prompt_logprobs": [{"decoded_token": FORBIDDEN}]},
        ),
    ],
)
async def test_a_whole_answer_has_no_text_that_was_not_examined(fields: dict[str, Any], choice: dict[str, Any]) -> None:
    body = {"id": "1", "object": "chat.completion", "choices": [{**WHOLE, **choice}], "usage": {}, **fields}
    one = guarded(FakeAdapter(Script(chunks=(json.dumps(body).encode(),))))
    async with listening(one) as url, aiohttp.ClientSession() as http:
        headers = {"authorization": f"Bearer {one.key.plaintext}"}
        request = {"model": "whole", **CHAT, "logprobs": True}
        async with http.post(f"{url}/v1/chat/completions", json=request, headers=headers) as response:
            received = await response.text()
            assert response.status == 200
            assert FORBIDDEN not in received
            assert json.loads(received)["choices"][0]["message"]["content"] == "fine"


async def test_strange_indexes_are_no_failure_of_the_gateway() -> None:
    calls = [{"index": "x", "function": {"name": "f", "arguments": {"a": 1}}}, {"index": 0, "function": {}}, 7]
    choice = {"index": [1], "delta": {"tool_calls": calls}, "finish_reason": None}
    strange = b"data: " + json.dumps({"choices": [choice]}).encode() + b"\n\n"
    end = b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"tool_calls"}]}\n\n'
    (received,) = await streamed("/v1/chat/completions", [Script(chunks=(strange, end, b"data: [DONE]\n\n"))])
    assert '"arguments":"{\\"a\\":1}"' in received
