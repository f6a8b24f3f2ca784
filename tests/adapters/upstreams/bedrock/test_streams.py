"""ConverseStream for clients of chats and of Messages."""

import asyncio
import json
from typing import Any

import pytest

from adapters.base import Answer
from adapters.errors import (
    BackendError,
    CallerError,
    CapacityError,
    InferenceError,
    ServerFailed,
    UpstreamTimeout,
)
from adapters.wire import sse
from adapters.wire.openai import chat as openai
from tests.support.openai_answers import within
from tests.support.providers.bedrock_adapters import (
    TIME,
    WEATHER,
    adapting,
    chat,
    chatted,
    chunks,
    events,
    message,
    written,
)
from tests.support.providers.bedrock_shapes import signature

Object = dict[str, Any]


async def test_a_stream_has_the_parts_of_the_whole_answer() -> None:
    body: Object = {"tools": [WEATHER, TIME], "thinking": {"type": "adaptive"}}
    completion, _ = await chatted(chat("think redact and call", **body))
    parts, answer = await chunks(
        chat("think redact and call", stream=True, stream_options={"include_usage": True}, **body)
    )
    deltas = [choice["delta"] for part in parts for choice in part["choices"]]
    whole = completion["choices"][0]["message"]
    assert "".join(delta.get("content") or "" for delta in deltas) == whole["content"]
    assert "".join(delta.get("reasoning_content", "") for delta in deltas) == whole["reasoning_content"]
    assert [block["type"] for delta in deltas for block in delta.get("thinking_blocks", ())] == [
        "thinking",
        "redacted_thinking",
    ]
    calls = dict[int, list[str]]()
    for call in [call for delta in deltas for call in delta.get("tool_calls", ())]:
        calls.setdefault(call["index"], []).append(call["function"].get("arguments", ""))
    arguments = ["".join(pieces) for pieces in calls.values()]
    assert [json.loads(each) for each in arguments] == [
        json.loads(call["function"]["arguments"]) for call in whole["tool_calls"]
    ]
    assert parts[-1]["usage"] == completion["usage"]
    assert answer.usage.exact


async def test_a_message_is_streamed_as_anthropic_streams_it() -> None:
    tools = [{"name": "weather", "input_schema": {"type": "object"}}]
    given, answer = await events(message("think redact call", tools=tools, thinking={"type": "adaptive"}, stream=True))
    starts = [event["content_block"]["type"] for event in given if event["type"] == "content_block_start"]
    assert starts == ["thinking", "redacted_thinking", "text", "tool_use"]
    assert [event["index"] for event in given if event["type"] == "content_block_stop"] == [0, 1, 2, 3]
    signatures = [
        event["delta"]["signature"] for event in given if event.get("delta", {}).get("type") == "signature_delta"
    ]
    assert signatures == [signature("Let me see.")]
    assert given[0]["type"] == "message_start"
    assert given[-2]["usage"]["input_tokens"] == answer.usage.prompt_tokens
    assert given[-2]["delta"]["stop_reason"] == "tool_use"


@pytest.mark.parametrize("piece", [1, 7, 64])
async def test_any_size_of_the_pieces_gives_the_same_stream(piece: int) -> None:
    async with adapting() as (adapter, server):
        request = openai.decode_chat(chat("think and answer", thinking={"type": "adaptive"}, stream=True))
        whole, _ = await written(adapter, request)
        server.piece = piece
        cut, _ = await written(adapter, request)
    assert [_without_time(each) for each in cut.split(b"\n\n")] == [
        _without_time(each) for each in whole.split(b"\n\n")
    ]


def _without_time(stream: bytes) -> list[Any]:
    data = [sse.data_of(event) for event in stream.split(b"\n\n")]
    return [{**json.loads(each), "created": 0} if each.startswith(b"{") else each for each in data]


async def test_a_stream_that_is_cut_anywhere_never_seems_whole() -> None:
    async with adapting() as (adapter, server):
        request = openai.decode_chat(chat("a b c", stream=True))
        size = 0
        for cut in range(0, 1100, 13):
            server.cut = cut
            try:
                stream, answer = await written(adapter, request)
            except InferenceError:
                size = cut
                continue
            assert stream.endswith(b"data: [DONE]\n\n")
            assert answer.usage.completion_tokens > 0
        assert size > 300


@pytest.mark.parametrize(
    ("prompt", "kind"),
    [
        ("!mid ThrottlingException", CapacityError),
        ("!mid ServiceUnavailableException", CapacityError),
        ("!mid InternalServerException", ServerFailed),
        ("!mid ModelStreamErrorException", ServerFailed),
        ("!mid ModelTimeoutException", UpstreamTimeout),
        ("!mid ValidationException", CallerError),
        ("!crc", BackendError),
    ],
)
async def test_an_exception_within_a_stream_ends_it_with_its_class(prompt: str, kind: type[InferenceError]) -> None:
    async with adapting() as (adapter, _):
        answer = await adapter.call(openai.decode_chat(chat(f"{prompt} b c d", stream=True)), within())
        received = await answer.__anext__()
        with pytest.raises(kind):
            await _rest(answer)
    assert b'"content":"!' in received


async def _rest(answer: Answer) -> None:
    async for part in answer:
        assert b"[DONE]" not in part


async def test_a_stream_of_a_client_that_leaves_is_closed_and_counted() -> None:
    async with adapting() as (adapter, server):
        answer = await adapter.call(openai.decode_chat(chat("slow " * 30, stream=True)), within())
        received = b""
        while b"slow" not in received:
            received += await answer.__anext__()
        await answer.aclose()
        assert answer.usage.completion_tokens >= 1
        assert not answer.usage.exact
        while server.running:
            await asyncio.sleep(0.01)
