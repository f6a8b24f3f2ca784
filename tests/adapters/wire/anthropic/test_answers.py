"""Answers of chats as messages and of messages as chats: whole and streamed, there and back."""

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adapters.errors import BackendError
from adapters.types import Usage
from adapters.wire import reported_usage
from adapters.wire.anthropic.answers import MessageEvents, completion_of, message_of, read_message, reported_by
from adapters.wire.anthropic.stream_to_chat import ChatChunks, read_event
from adapters.wire.anthropic.tools import MAX_NAME, OwnNames
from adapters.wire.openai import bounds
from adapters.wire.openai import chat as openai
from adapters.wire.reported_usage import chat_fields
from tests.support.door_events import message_of_events

Object = dict[str, Any]
OWN = Usage(5, 6)
"""The gateway's own count, for a server that reports none."""

words = st.text(min_size=1, max_size=12)
thoughts = st.builds(lambda text: {"type": "thinking", "thinking": text, "signature": "s" + text}, words)
hidden = st.builds(lambda data: {"type": "redacted_thinking", "data": data}, words)
spoken = st.builds(lambda text: {"type": "text", "text": text}, words)
inputs = st.dictionaries(words, st.integers(-9, 9) | words | st.lists(st.none(), max_size=2), max_size=3)


@st.composite
def messages(draw: st.DrawFn) -> Object:
    """The contents that a chat can express: thoughts, a text, calls."""
    content = [*draw(st.lists(thoughts | hidden, max_size=1)), *draw(st.lists(spoken, max_size=1))]
    calls = draw(st.lists(st.tuples(words, inputs), max_size=3))
    content += [
        {"type": "tool_use", "id": f"toolu_of_its_own_{i:04}", "name": n, "input": v} for i, (n, v) in enumerate(calls)
    ]
    ends = ["tool_use"] if calls else ["end_turn", "max_tokens", "stop_sequence", "refusal"]
    reason = draw(st.sampled_from(ends))
    counts = [draw(st.integers(1, 1000)) for _ in range(5)]
    counts[4] = min(counts[4], counts[1])
    return {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "m",
        "content": content,
        "stop_reason": reason,
        "stop_sequence": "END" if reason == "stop_sequence" else None,
        "usage": {
            "input_tokens": counts[0],
            "output_tokens": counts[1],
            "cache_read_input_tokens": counts[2],
            "cache_creation_input_tokens": counts[3],
            "output_tokens_details": {"thinking_tokens": counts[4]},
        },
    }


@settings(max_examples=80, deadline=None)
@given(messages())
def test_a_whole_message_survives_both_conversions(message: Object) -> None:
    completion = completion_of(read_message(json.dumps(message).encode()), 1)
    assert {**json.loads(message_of(completion, OWN, ["END"])), "id": "msg_1"} == message


@settings(max_examples=80, deadline=None)
@given(messages(), st.integers(1, 5))
def test_a_streamed_message_survives_both_conversions(message: Object, size: int) -> None:
    chunks, cost, back = ChatChunks(1, include_usage=True), Usage(), MessageEvents(["END"])
    written = b""
    for event in events_of(message, size):
        decoded = read_event(json.dumps(event).encode())
        if decoded.type == "message_delta" and (reported := reported_by(decoded.usage)) is not None:
            cost = reported.usage or Usage()
        if words_ := chunks.take(decoded, cost):
            written += back.take(words_, OWN)
    assert {**message_of_events(written), "id": "msg_1"} == message


def events_of(message: Object, size: int) -> list[Object]:
    """The events of a message in Anthropic's stream, `size` characters at a time."""
    begun = {**message, "content": [], "stop_reason": None, "stop_sequence": None}
    events: list[Object] = [{"type": "message_start", "message": begun}, {"type": "ping"}]
    for i, block in enumerate(message["content"]):
        empty: Object = {"text": "", "thinking": "", "signature": "", "input": {}}
        start = {name: empty.get(name, value) for name, value in block.items()}
        events.append({"type": "content_block_start", "index": i, "content_block": start})
        for type_, name, text in deltas_of(block):
            parts = [text] if name == "signature" else [text[at : at + size] for at in range(0, len(text), size)]
            events += [
                {"type": "content_block_delta", "index": i, "delta": {"type": type_, name: part}} for part in parts
            ]
        events.append({"type": "content_block_stop", "index": i})
    delta = {name: message[name] for name in ("stop_reason", "stop_sequence")}
    events.append({"type": "message_delta", "delta": delta, "usage": message["usage"]})
    return [*events, {"type": "message_stop"}]


def deltas_of(block: Object) -> list[tuple[str, str, str]]:
    match block["type"]:
        case "text":
            return [("text_delta", "text", block["text"])]
        case "thinking":
            signed = ("signature_delta", "signature", block["signature"])
            return [("thinking_delta", "thinking", block["thinking"]), signed]
        case "tool_use" if block["input"]:
            return [("input_json_delta", "partial_json", json.dumps(block["input"]))]
    return []


@pytest.mark.parametrize(
    ("fields", "content"),
    [
        ({"content": None}, []),
        ({"content": "a", "refusal": "b"}, ["text"]),
        ({"content": "a", "reasoning": "b"}, ["thinking", "text"]),
        ({"content": None, "tool_calls": [{"function": {"name": "f"}}]}, ["tool_use"]),
    ],
)
def test_answers_of_several_servers(fields: Object, content: list[str]) -> None:
    choice = {"index": 0, "message": {"role": "assistant", **fields}, "finish_reason": "stop"}
    message = json.loads(message_of(json.dumps({"id": "x", "choices": [choice]}).encode(), OWN, []))
    assert [block["type"] for block in message["content"]] == content
    assert message["stop_reason"] == ("tool_use" if "tool_calls" in fields else "end_turn")
    assert (message["usage"]["input_tokens"], message["usage"]["output_tokens"]) == (5, 6)


@pytest.mark.parametrize("body", [b"{", b"[]", b'{"choices":[]}', b'{"choices":[{"message":7}]}'])
def test_a_malformed_answer_is_a_backend_error(body: bytes) -> None:
    with pytest.raises(BackendError):
        message_of(body, OWN, [])


@settings(max_examples=150, deadline=None)
@given(st.lists(st.binary(max_size=40) | st.builds(lambda value: json.dumps(value).encode(), inputs), max_size=4))
def test_a_stream_of_noise_is_decoded_or_refused(pieces: list[bytes]) -> None:
    forth = ChatChunks(1, include_usage=False)
    forth.take(read_event(b'{"type":"message_start","message":{"id":"1"}}'), Usage())
    for piece in pieces:
        with suppress(BackendError):
            forth.take(read_event(piece), Usage())


def test_parts_that_a_chat_lacks_are_omitted() -> None:
    content = [
        {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}},
        {"type": "text", "text": "a", "citations": [{"type": "char_location"}]},
    ]
    body = {"type": "message", "content": content, "stop_reason": "pause_turn"}
    completion = json.loads(completion_of(read_message(json.dumps(body).encode()), 1))
    assert completion["choices"][0]["message"]["content"] == "a"
    assert completion["choices"][0]["finish_reason"] == "stop"
    assert completion["usage"]["total_tokens"] == 0


def test_tokens_of_the_cache_are_parts_of_the_prompt() -> None:
    names = ("input_tokens", "output_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
    reported = reported_by(dict(zip(names, (5, 2, 3, 4), strict=True)))
    assert reported is not None
    assert reported.usage == Usage(12, 2, exact=True, cached_tokens=3, cache_write_tokens=4)
    again = reported_usage.read(chat_fields(reported.usage))
    assert again is not None
    assert again.usage == reported.usage


@pytest.mark.parametrize("name", ["a.b", "f", "n" * 200, f"f_{'0' * 10}"])
def test_a_client_of_chats_gets_its_own_names_of_tools(name: str) -> None:
    tools = [{"type": "function", "function": {"name": name}}]
    body = json.dumps({"model": "m", "messages": [{"role": "user", "content": "x"}], "tools": tools}).encode()
    fields = openai.decode_chat(body).fields
    given, names = bounds.tool_name(name, MAX_NAME), OwnNames(fields, MAX_NAME)
    block = {"type": "tool_use", "id": "t", "name": given, "input": {}}
    whole = {"type": "message", "content": [block]}
    (call,) = json.loads(completion_of(read_message(json.dumps(whole).encode()), 1, names))["choices"][0]["message"][
        "tool_calls"
    ]
    forth = ChatChunks(1, include_usage=False, name_of=names)
    forth.take(read_event(b'{"type":"message_start","message":{"id":"m","model":"x"}}'), Usage())
    start = json.dumps({"type": "content_block_start", "content_block": block}).encode()
    assert call["function"]["name"] == name
    assert (
        json.dumps({"name": name, "arguments": ""}, separators=(",", ":"))
        in forth.take(read_event(start), Usage()).decode()
    )
