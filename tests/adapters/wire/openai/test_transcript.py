import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.types import Usage
from adapters.wire.openai import transcript as module
from adapters.wire.openai.chat import decode_chat, decode_completion
from adapters.wire.openai.transcript import Mode, Transcript, can_continue
from tests.support.gateways import chat

HEAD = {"id": "first", "object": "chat.completion.chunk", "created": 1, "model": "m"}
REQUEST = chat(stream=True)


def event(delta: dict[str, Any], reason: str | None = None, **more: Any) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": reason, **more.pop("choice", {})}
    return b"data: " + json.dumps({**HEAD, "choices": [choice], **more}, separators=(",", ":")).encode() + b"\n\n"


def transcript_of(mode: Mode, *events: bytes) -> Transcript:
    transcript = Transcript(mode)
    for each in events:
        transcript.take(each)
    return transcript


@pytest.mark.parametrize(
    "delta",
    [
        {"tool_calls": [{"index": 0, "function": {"name": "f", "arguments": ""}}]},
        {"function_call": {"name": "f"}},
        {"reasoning_content": "hm"},
        {"reasoning": "hm"},
        {"refusal": "no"},
        {"audio": {"id": "a"}},
    ],
    ids=str,
)
def test_a_stream_with_more_than_text_cannot_be_resumed(delta: dict[str, Any]) -> None:
    transcript = transcript_of("text", event({"content": "a"}))
    assert transcript.rest(REQUEST) is not None
    assert transcript.take(event(delta)) == event(delta)
    assert transcript.rest(REQUEST) is None
    transcript.take(event({"content": "b"}))
    assert transcript.rest(REQUEST) is None


def test_another_choice_and_unreadable_events_end_it_and_pass_unchanged() -> None:
    for piece in (event({"content": "b"}, choice={"index": 1}), b"data: {\n\n", b"data: 3\n\n"):
        transcript = transcript_of("text", event({"content": "a"}))
        assert transcript.take(piece) == piece
        assert transcript.rest(REQUEST) is None


def test_a_finish_reason_is_the_end() -> None:
    transcript = transcript_of("text", event({"content": "a"}), event({}, "stop"))
    assert transcript.finished
    assert transcript.rest(REQUEST) is None


@pytest.mark.parametrize("mode", ["text", "tokens"])
def test_the_transcript_is_bounded(mode: Mode, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_TRANSCRIPT", 4)
    transcript = Transcript(mode)
    for i in range(5):
        assert (transcript.rest(REQUEST) is None) == (i > 4)
        transcript.take(event({"content": "x"}, choice={"token_ids": [i]}))
    assert transcript.rest(REQUEST) is None
    assert not transcript._text
    assert not transcript._tokens


def test_comments_and_the_end_pass() -> None:
    transcript = Transcript("tokens")
    for piece in (b": ping\n\n", b"data: [DONE]\n\n", b"event: x\n\n"):
        assert transcript.take(piece) == piece


@given(st.text(), st.lists(st.integers(0, 99999), min_size=1))
def test_token_ids_are_taken_out_and_nothing_else(text: str, token_ids: list[int]) -> None:
    """Not even out of a text that spells them."""
    spelled = text + ',"token_ids":[1]'
    transcript = Transcript("tokens")
    plain = event({"content": spelled}, choice={"logprobs": None})
    assert transcript.take(event({"content": spelled}, choice={"logprobs": None, "token_ids": token_ids})) == plain
    fields = transcript.rest(REQUEST)
    assert fields is not None
    assert json.loads(bytes(fields["continue_token_ids"])) == token_ids


def test_an_engine_without_token_ids_is_not_resumed_from_them() -> None:
    assert transcript_of("tokens", event({"content": "a"})).rest(REQUEST) is None


def test_the_rest_wears_the_first_stream_s_name_and_opens_nothing() -> None:
    transcript = transcript_of("text", event({"role": "assistant", "content": ""}), event({"content": "a"}))
    transcript.resumed()
    other: dict[str, Any] = {"id": "second", "created": 2, "model": "n", "system_fingerprint": "fp"}
    assert transcript.take(event({"role": "assistant", "content": ""}, **other)) == b""
    assert transcript.take(event({"role": "assistant", "content": "b"}, **other)) == event({"content": "b"})
    assert transcript.take(event({"content": "c"}, **other) + event({}, "stop", **other)) == event(
        {"content": "c"}
    ) + event({}, "stop")
    usage = {"prompt_tokens": 8, "completion_tokens": 5, "total_tokens": 13, "prompt_tokens_details": {"cached": 7}}
    usage_sent = json.loads(transcript.take(event({}, usage=usage, **other)).removeprefix(b"data: "))["usage"]
    assert usage_sent == {**usage, "prompt_tokens": 7, "completion_tokens": 6}


def test_exact_and_estimated_usage_add_up() -> None:
    transcript = transcript_of("text", event({"content": "a"}), event({"content": "b"}))
    assert transcript.usage(Usage(3, 2)) == Usage(3, 2)
    transcript.resumed()
    assert transcript.usage(Usage(5, 4, exact=True)) == Usage(3, 6, exact=True)
    assert transcript.usage(Usage(3, 4)) == Usage(3, 6)  # an estimate of the prompt, and what was counted
    exact = transcript_of("tokens", event({"content": "a"}, choice={"token_ids": [1, 2]}))
    exact.resumed()
    assert exact.usage(Usage(3, 6, exact=True)) == Usage(3, 6, exact=True)
    assert exact.usage(Usage(3, 4)) == Usage(3, 6)


@pytest.mark.parametrize(
    ("fields", "text", "tokens"),
    [
        ({"prompt": "a", "max_tokens": 5}, True, True),
        ({"prompt": "a"}, False, True),  # engines differ in what they take for a default
        ({"prompt": [1, 2], "max_tokens": 5}, False, True),
        ({"prompt": ["a"], "max_tokens": 5}, False, False),
        ({"prompt": [[1]], "max_tokens": 5}, False, False),
        ({"prompt": "a", "max_tokens": 5, "echo": True}, False, False),
        ({"prompt": "a", "max_tokens": 5, "best_of": 1, "suffix": ""}, True, True),
        ({"prompt": "a", "max_tokens": 5, "best_of": 2}, False, False),
        ({"prompt": "a", "max_tokens": 5, "stream": False}, False, False),
    ],
    ids=str,
)
def test_which_completions_can_be_carried_on(fields: dict[str, Any], text: bool, tokens: bool) -> None:
    request = decode_completion(json.dumps({"model": "m", "stream": True, **fields}, indent=1).encode())
    assert (can_continue(request, "text"), can_continue(request, "tokens")) == (text, tokens)


def test_white_space_makes_no_difference() -> None:
    body = (
        b'{"model":"m","stream":true,"messages":[{"role":"user","content":"x"}],"response_format":{ "type" : "text" }}'
    )
    assert can_continue(decode_chat(body), "text")


@pytest.mark.parametrize("name", ["reasoning_content", "reasoning"])
def test_a_thought_is_continued_from_its_tokens_and_never_from_its_text(name: str) -> None:
    thought = event({name: "Hm"}, choice={"token_ids": [1, 2]})
    hidden = event({}, choice={"token_ids": [3]})
    transcript = transcript_of("tokens", thought, hidden, event({"content": "a"}, choice={"token_ids": [4]}))
    fields = transcript.rest(REQUEST)
    assert fields is not None
    assert json.loads(bytes(fields["continue_token_ids"])) == [1, 2, 3, 4]
    assert transcript_of("text", event({name: "Hm"}), event({"content": "a"})).rest(REQUEST) is None
