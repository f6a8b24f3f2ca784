"""Guards that only count see the streams of every API, which leave as their servers write them."""

import asyncio
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.fake import FakeAdapter, Script
from adapters.types import OPENAI, Usage
from tests.support.cut_streams import PARTS, cuts_of, script
from tests.support.gateways import Rig, config
from tests.support.guarding import WORDS, received
from tests.support.judging import BY_CHAT, Judging
from tests.support.native_streams import MESSAGES, NATIVE, RESPONSES, NativeStream, named, stream_of

TEXT = "see the secret plan, the ＺＥＢＲＡ and the \\u007aebra"
MONITOR: dict[str, Any] = {**WORDS, "mode": "monitor"}
WARN: dict[str, Any] = {**WORDS, "action": "warn"}
CHATS = NativeStream("/v1/chat/completions", OPENAI, "openai", {"stream": True})
Verdicts = dict[tuple[str, str, str, str], int]


def guarding(native: NativeStream, *streams: list[bytes], guard: dict[str, Any] = MONITOR, **judge: Any) -> Rig:
    """A gateway before a server that streams the native answers."""
    scripts = [Script(chunks=tuple(each), form=native.form, usage=Usage(1, 3, exact=True)) for each in streams]
    pool = {"name": "main", "endpoints": ["http://127.0.0.1:9"], "protocol": native.protocol}
    models = [{"name": "chat", "guards": [guard["name"]], "routes": [{"to": "main"}]}]
    if judge:
        models.append({"name": "judge", "routes": [{"to": "judge"}]})
    pools = [pool, *({"name": name, "endpoints": ["http://127.0.0.1:9"]} for name in judge)]
    fakes = {"main": [FakeAdapter(*scripts)], **{name: [fake] for name, fake in judge.items()}}
    return Rig(config(guards=[guard], pools=pools, models=models), fakes)


async def verdicts_of(one: Rig, native: NativeStream, streams: list[list[bytes]]) -> list[Verdicts]:
    """The verdicts of the answers. Every stream leaves as it is."""
    bodies = [body for _, body, _ in await received(one, native.path, len(streams), **native.fields)]
    assert bodies == [b"".join(each).decode() for each in streams]
    one.assert_idle()
    return [
        {key: count for key, count in (record.guards or {}).items() if key[3] == "answer"}
        for record in one.log.records
    ]  # fmt: skip


@pytest.mark.parametrize("guard", [MONITOR, WARN], ids=["monitor", "warn"])
@pytest.mark.parametrize("part", ["content", "thoughts", "arguments"])
@pytest.mark.parametrize("name", NATIVE)
async def test_each_text_of_a_native_stream_is_counted(name: str, part: str, guard: dict[str, Any]) -> None:
    native, written = NATIVE[name], json.dumps({"q": TEXT}) if part == "arguments" else TEXT
    streams = [stream_of(native, part, cut) for cut in cuts_of(written, seed=len(name))]
    one = guarding(native, *streams, guard=guard)
    action, mode = guard.get("action", "block"), guard.get("mode", "enforce")
    for verdicts in await verdicts_of(one, native, streams):
        assert verdicts == {("words", action, mode, "answer"): 3}


@given(
    st.lists(st.sampled_from(["secret ", "plan", "ze", "bra", "\u200b", " ", "x", "\\u007a", "é"]), min_size=1),
    st.sampled_from(["content", "thoughts"]),
)
def test_a_native_stream_counts_as_a_chat_does(pieces: list[str], part: str) -> None:
    async def counted() -> None:
        delta = PARTS["content" if part == "content" else "reasoning"]
        chat = guarding(CHATS, list(script(pieces, delta).chunks))
        await received(chat, CHATS.path, stream=True)
        for native in NATIVE.values():
            stream = stream_of(native, part, pieces)
            (verdicts,) = await verdicts_of(guarding(native, stream), native, [stream])
            assert verdicts == (chat.log.records[0].guards or {})

    asyncio.run(counted())


@pytest.mark.parametrize("name", NATIVE)
async def test_a_judge_receives_the_text_of_a_native_stream(name: str) -> None:
    native, judge = NATIVE[name], Judging()
    streams = [stream_of(native, "content", ["a Ze", "bra!"]), stream_of(native, "content", ["a hor", "se"])]
    guard = {**BY_CHAT, "on": ["answer"], "mode": "monitor"}
    one = guarding(native, *streams, guard=guard, judge=judge)
    assert await verdicts_of(one, native, streams) == [{("g", "block", "monitor", "answer"): 1}, {}]
    assert judge.texts == ["a Zebra!", "a horse"]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("name", NATIVE)
async def test_a_schema_judges_native_answers(name: str, *, stream: bool) -> None:
    native = NATIVE[name]
    guard: dict[str, Any] = {"name": "form", "kind": "schema", "json_schema": {"required": ["a"]}, "mode": "monitor"}
    texts = ['{"a": 1}', '{"b": 1}']
    if stream:
        streams = [stream_of(native, "content", list(text)) for text in texts]
        counted = await verdicts_of(guarding(native, *streams, guard=guard), native, streams)
    else:
        path = native.path.replace("streamGenerateContent?alt=sse", "generateContent")
        fields = {key: value for key, value in native.fields.items() if key != "stream"}
        one = guarding(native, *([whole(name, text)] for text in texts), guard=guard)
        await received(one, path, len(texts), **fields)
        counted = [dict(record.guards or {}) for record in one.log.records]
    assert counted == [{}, {("form", "block", "monitor", "answer"): 1}]


def whole(name: str, text: str) -> bytes:
    bodies: dict[str, dict[str, Any]] = {
        "messages": {
            "id": "m", "type": "message", "role": "assistant", "model": "x", "stop_reason": "end_turn",
            "content": [{"type": "text", "text": text[:3]}, {"type": "text", "text": text[3:]}],
            "usage": {"input_tokens": 1, "output_tokens": 1},
        },
        "contents": {"candidates": [{"content": {"parts": [{"text": "x", "thought": True}, {"text": text}]}}]},
        "responses": {
            "id": "resp_1", "object": "response", "status": "completed", "model": "x",
            "output": [
                {"type": "reasoning", "id": "r", "summary": []},
                {"type": "message", "id": "i", "content": [{"type": "output_text", "text": text}]},
            ],
        },
    }  # fmt: skip
    return json.dumps(bodies[name]).encode()


async def test_parts_that_a_stream_does_not_cut_are_counted_once() -> None:
    results = {"type": "web_search_tool_result", "tool_use_id": "t", "content": [{"title": "a zebra", "url": "u"}]}
    citation = {"type": "web_search_result_location", "cited_text": "the secret plan"}
    stream = stream_of(MESSAGES, "content", ["zebra"])
    stream[2:2] = [
        named("content_block_start", index=1, content_block=results),
        named("content_block_delta", index=0, delta={"type": "citations_delta", "citation": citation}),
    ]
    (verdicts,) = await verdicts_of(guarding(MESSAGES, stream), MESSAGES, [stream])
    assert verdicts == {("words", "block", "monitor", "answer"): 3}

    call = {"type": "web_search_call", "id": "w", "status": "completed", "action": {"type": "search", "query": "zebra"}}
    silent = {"type": "function_call", "id": "f", "call_id": "c", "name": "f", "arguments": '{"q": "zebra"}'}
    stream = stream_of(RESPONSES, "content", ["zebra"])
    stream[-1:-1] = [
        named("response.output_item.done", output_index=index, item=item)
        for index, item in enumerate([call, silent], 1)
    ]
    (verdicts,) = await verdicts_of(guarding(RESPONSES, stream), RESPONSES, [stream])
    assert verdicts == {("words", "block", "monitor", "answer"): 3}


@pytest.mark.parametrize("name", NATIVE)
async def test_a_stream_that_no_guard_can_read_leaves_as_it_is(name: str) -> None:
    native = NATIVE[name]
    begin, *rest = stream_of(native, "content", ["a zebra"])
    kinds = ["content_block_start", "content_block_delta", "response.output_item.done", "response.output_text.delta"]
    broken = [{"type": kind, "index": {}, "output_index": [], "content_index": "x", "delta": 1} for kind in kinds]
    broken += [{"type": kind, "content_block": {"input": [1]}, "delta": {"text": 1}, "item": [1]} for kind in kinds]
    broken += [
        {"type": ["a"]},
        {"candidates": [1, {"index": {}, "content": {"parts": [1, {"functionCall": {"name": 1}}]}}]},
    ]
    events = [f"data: {json.dumps(each)}\n\n".encode() for each in broken]
    stream = [begin, *events, *rest]
    (verdicts,) = await verdicts_of(guarding(native, stream), native, [stream])
    assert verdicts == {("words", "block", "monitor", "answer"): 1}
    for strange in (b"data: {\n\n", b"data: []\n\n"):
        stream = [begin, strange, *rest]
        assert await verdicts_of(guarding(native, stream), native, [stream]) == [{}]
