"""Answers of chats as messages and of messages as chats: whole and streamed, there and back."""

import json
from contextlib import suppress
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adapters.errors import BackendError
from adapters.types import Usage
from adapters.wire import sse
from adapters.wire.anthropic.answers import completion_of, message_of, read_message
from adapters.wire.anthropic.chunks import ChatChunks, read_event
from adapters.wire.anthropic.events import MessageEvents
from adapters.wire.anthropic.open_blocks import MAX_ARGUMENTS, MAX_CALLS, OpenBlocks
from adapters.wire.anthropic.usage import MessageUsage
from adapters.wire.openai.chat_usage import ChatUsage

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
    content += [{"type": "tool_use", "id": f"t{i}", "name": n, "input": v} for i, (n, v) in enumerate(calls)]
    ends = ["tool_use"] if calls else ["end_turn", "max_tokens", "stop_sequence", "refusal"]
    reason = draw(st.sampled_from(ends))
    counts = [draw(st.integers(0, 1000)) for _ in range(5)]
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
    assert json.loads(message_of(completion, OWN, ["END"])) == message


@settings(max_examples=80, deadline=None)
@given(messages(), st.integers(1, 5))
def test_a_streamed_message_survives_both_conversions(message: Object, size: int) -> None:
    chunks, cost, back = ChatChunks(1, include_usage=True), MessageUsage(), MessageEvents(["END"])
    written = b""
    for event in events_of(message, size):
        decoded = read_event(json.dumps(event).encode())
        if decoded.type == "message_delta" and decoded.usage is not None:
            cost = decoded.usage
        if words_ := chunks.take(decoded, cost):
            written += back.take(words_, OWN)
    assert accumulated(written) == message


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


def accumulated(written: bytes) -> Object:
    """The message that a client assembles from a stream. Blocks follow one another, each begun and ended once."""
    message: Object = {}
    opened: int | None = None
    for event in written.split(b"\n\n"):
        if not event:
            continue
        fields = json.loads(sse.data_of(event))
        assert event.startswith(b"event: " + fields["type"].encode() + b"\n")
        match fields["type"]:
            case "message_start":
                assert not message
                message = fields["message"]
            case "content_block_start":
                assert opened is None
                opened = fields["index"]
                assert opened == len(message["content"])
                message["content"].append(
                    {**fields["content_block"], **({"input": ""} if "input" in fields["content_block"] else {})}
                )
            case "content_block_delta":
                assert fields["index"] == opened
                (name,) = fields["delta"].keys() - {"type"}
                block, text = message["content"][opened], fields["delta"][name]
                name = "input" if name == "partial_json" else name
                block[name] += text
            case "content_block_stop":
                assert fields["index"] == opened
                opened = None
                block = message["content"][fields["index"]]
                if "input" in block:
                    block["input"] = json.loads(block["input"] or "{}")
            case "message_delta":
                assert opened is None
                message |= fields["delta"]
                message["usage"] = {**message["usage"], **fields["usage"]}
    assert fields["type"] == "message_stop"
    return message


@settings(max_examples=80, deadline=None)
@given(st.lists(inputs, min_size=1, max_size=4), st.randoms(use_true_random=False), st.booleans())
def test_however_the_pieces_of_calls_are_mixed_each_call_is_whole(calls: list[Object], chance: Any, text: bool) -> None:
    pieces = [[json.dumps(call)[at : at + 3] for at in range(0, len(json.dumps(call)), 3)] for call in calls]
    blocks, out = OpenBlocks(), list[bytes]()
    if text:
        out += blocks.text("so")
    for i in range(len(calls)):
        out += blocks.call(i, f"t{i}", f"f{i}", "")
    left = [i for i, parts in enumerate(pieces) for _ in parts]
    chance.shuffle(left)
    for i in left:
        out += blocks.call(i, None, None, pieces[i].pop(0))
    out += blocks.end()
    start = b'event: message_start\ndata: {"type":"message_start","message":{"content":[],"usage":{}}}\n\n'
    end = b'event: message_stop\ndata: {"type":"message_stop"}\n\n'
    content = accumulated(start + b"".join(out) + end)["content"]
    blocks_of_calls = [block for block in content if block["type"] == "tool_use"]
    assert [(block["id"], block["name"], block["input"]) for block in blocks_of_calls] == [
        (f"t{i}", f"f{i}", call) for i, call in enumerate(calls)
    ]


def test_calls_without_an_index_are_distinguished_by_their_ids() -> None:
    """Some servers send each call whole."""
    blocks = OpenBlocks()
    out = [
        *blocks.call(None, "a", "f", '{"x":'),
        *blocks.call(None, None, None, "1}"),
        *blocks.call(None, "b", "g", "{}"),
    ]
    events = [json.loads(sse.data_of(event)) for event in [*out, *blocks.end()]]
    opened = [each["content_block"]["id"] for each in events if each["type"] == "content_block_start"]
    arguments = [each["delta"]["partial_json"] for each in events if each["type"] == "content_block_delta"]
    assert (opened, arguments) == (["a", "b"], ['{"x":', "1}", "{}"])


def test_calls_are_bounded() -> None:
    blocks = OpenBlocks()
    blocks.call(0, "a", "f", "x" * MAX_ARGUMENTS)
    with pytest.raises(BackendError):
        blocks.call(0, None, None, "x")
    blocks = OpenBlocks()
    for i in range(MAX_CALLS):
        blocks.call(i, "a", "f", "")
    with pytest.raises(BackendError):
        blocks.call(MAX_CALLS, "a", "f", "")


def test_arguments_after_a_calls_end_are_an_error() -> None:
    blocks = OpenBlocks()
    blocks.call(0, "a", "f", "{}")
    blocks.text("so")
    with pytest.raises(BackendError):
        blocks.call(0, None, None, "more")


@pytest.mark.parametrize(
    ("fields", "content"),
    [
        ({"content": None}, []),
        ({"content": "a", "refusal": "b"}, ["text", "text"]),
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
    assert message["id"] == "msg_x"


@pytest.mark.parametrize(
    "body", [b"{", b"[]", b'{"choices":[]}', b'{"choices":[{"message":{"content":[1]}}]}', b"\xff"]
)
def test_a_malformed_answer_is_a_backend_error(body: bytes) -> None:
    with pytest.raises(BackendError):
        message_of(body, OWN, [])


@settings(max_examples=150, deadline=None)
@given(st.lists(st.binary(max_size=40) | st.builds(lambda value: json.dumps(value).encode(), inputs), max_size=4))
def test_a_stream_of_noise_is_decoded_or_refused(pieces: list[bytes]) -> None:
    role = b'{"id":"1","choices":[{"index":0,"delta":{"role":"assistant"}}]}'
    start = b'{"type":"message_start","message":{"id":"1"}}'
    back, forth = MessageEvents([]), ChatChunks(1, include_usage=False)
    forth.take(read_event(start), MessageUsage())
    for piece in (role, *pieces):
        with suppress(BackendError):
            back.take(sse.encode(piece.replace(b"\n", b" ")), OWN)
        with suppress(BackendError):
            forth.take(read_event(piece), MessageUsage())
    back.end(OWN)


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
    reported = MessageUsage(5, 2, 3, 4)
    assert reported.usage == Usage(12, 2, exact=True, cached_tokens=3, cache_write_tokens=4)
    assert msgspec.convert(reported.fields(), ChatUsage).counted == reported.usage
