import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.types import Usage
from adapters.wire.openai import transcript as module
from adapters.wire.openai.chat import decode_chat, decode_completion
from adapters.wire.openai.continuation import Mode, can_continue
from adapters.wire.openai.transcript import Transcript
from tests.support.gateways import chat

HEAD = {"id": "first", "object": "chat.completion.chunk", "created": 1, "model": "m"}
REQUEST = chat(stream=True)


def event(delta: dict[str, Any], reason: str | None = None, **more: Any) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": reason, **more.pop("choice", {})}
    return b"data: " + json.dumps({**HEAD, "choices": [choice], **more}, separators=(",", ":")).encode() + b"\n\n"


def saying(mode: Mode, *events: bytes) -> Transcript:
    said = Transcript(mode)
    for each in events:
        said.take(each)
    return said


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
def test_a_stream_that_says_more_than_text_cannot_be_carried_on(delta: dict[str, Any]) -> None:
    said = saying("text", event({"content": "a"}))
    assert said.rest(REQUEST) is not None
    assert said.take(event(delta)) == event(delta)
    assert said.rest(REQUEST) is None
    said.take(event({"content": "b"}))
    assert said.rest(REQUEST) is None


def test_another_choice_and_what_cannot_be_read_end_it_too_and_go_on_as_they_came() -> None:
    for piece in (event({"content": "b"}, choice={"index": 1}), b"data: {\n\n", b"data: 3\n\n"):
        said = saying("text", event({"content": "a"}))
        assert said.take(piece) == piece
        assert said.rest(REQUEST) is None


def test_a_finish_reason_is_the_end() -> None:
    said = saying("text", event({"content": "a"}), event({}, "stop"))
    assert said.finished
    assert said.rest(REQUEST) is None


@pytest.mark.parametrize("mode", ["text", "tokens"])
def test_what_is_kept_is_bounded(mode: Mode, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_TRANSCRIPT", 4)
    said = Transcript(mode)
    for i in range(5):
        assert (said.rest(REQUEST) is None) == (i > 4)
        said.take(event({"content": "x"}, choice={"token_ids": [i]}))
    assert said.rest(REQUEST) is None
    assert not said._text
    assert not said._tokens


def test_comments_and_the_end_pass() -> None:
    said = Transcript("tokens")
    for piece in (b": ping\n\n", b"data: [DONE]\n\n", b"event: x\n\n"):
        assert said.take(piece) == piece


@given(st.text(), st.lists(st.integers(0, 99999), min_size=1))
def test_token_ids_are_taken_out_and_nothing_else(text: str, token_ids: list[int]) -> None:
    """Not even out of a text that spells them."""
    spelled = text + ',"token_ids":[1]'
    said = Transcript("tokens")
    plain = event({"content": spelled}, choice={"logprobs": None})
    assert said.take(event({"content": spelled}, choice={"logprobs": None, "token_ids": token_ids})) == plain
    fields = said.rest(REQUEST)
    assert fields is not None
    assert json.loads(bytes(fields["continue_token_ids"])) == token_ids


def test_an_engine_that_tells_no_tokens_is_not_asked_to_go_on_from_them() -> None:
    assert saying("tokens", event({"content": "a"})).rest(REQUEST) is None


def test_the_rest_wears_the_first_stream_s_name_and_opens_nothing() -> None:
    said = saying("text", event({"role": "assistant", "content": ""}), event({"content": "a"}))
    said.resumed()
    other: dict[str, Any] = {"id": "second", "created": 2, "model": "n", "system_fingerprint": "fp"}
    assert said.take(event({"role": "assistant", "content": ""}, **other)) == b""
    assert said.take(event({"role": "assistant", "content": "b"}, **other)) == event({"content": "b"})
    assert said.take(event({"content": "c"}, **other) + event({}, "stop", **other)) == event({"content": "c"}) + event(
        {}, "stop"
    )
    usage = {"prompt_tokens": 8, "completion_tokens": 5, "total_tokens": 13, "prompt_tokens_details": {"cached": 7}}
    told = json.loads(said.take(event({}, usage=usage, **other)).removeprefix(b"data: "))["usage"]
    assert told == {**usage, "prompt_tokens": 7, "completion_tokens": 6}


def test_usage_adds_up_however_well_it_is_known() -> None:
    said = saying("text", event({"content": "a"}), event({"content": "b"}))
    assert said.usage(Usage(3, 2)) == Usage(3, 2)
    said.resumed()
    assert said.usage(Usage(5, 4, exact=True)) == Usage(3, 6, exact=True)
    assert said.usage(Usage(3, 4)) == Usage(3, 6)  # an estimate of the prompt, and what was counted
    exact = saying("tokens", event({"content": "a"}, choice={"token_ids": [1, 2]}))
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
    said = saying("tokens", thought, hidden, event({"content": "a"}, choice={"token_ids": [4]}))
    fields = said.rest(REQUEST)
    assert fields is not None
    assert json.loads(bytes(fields["continue_token_ids"])) == [1, 2, 3, 4]
    assert saying("text", event({name: "Hm"}), event({"content": "a"})).rest(REQUEST) is None
