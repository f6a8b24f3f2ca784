"""The adapter for Gemini against a server that is as strict as Google's."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from adapters.base import Adapter, Answer
from adapters.errors import (
    BackendError,
    CallerError,
    CapacityError,
    ContextTooLong,
    InferenceError,
    TransportError,
    UpstreamTimeout,
)
from adapters.registry import Address, make
from adapters.types import OPENAI
from adapters.wire import sse
from adapters.wire.openai import chat as openai
from tests.support.gateways import config
from tests.support.openai_answers import within
from tests.support.providers.gemini import KEY, LOCATION, MODEL, PROJECT, TOKEN, Gemini, gemini

Object = dict[str, Any]
TOOLS = [
    {
        "type": "function",
        "function": {"name": name, "parameters": {"type": "object", "properties": {"n": {"type": "integer"}}}},
    }
    for name in ("weather", "time")
]


def chat(text: Any = "hi there", **fields: Any) -> bytes:
    return json.dumps({"model": "ours", "messages": [{"role": "user", "content": text}], **fields}).encode()


@asynccontextmanager
async def adapting(model: str = MODEL, **protocol: Any) -> AsyncIterator[tuple[Adapter, Gemini]]:
    """An adapter for the stand-in, built from a pool's section."""
    async with gemini() as server:
        fields = {"key": KEY, "model": model, "protocol": {"name": "gemini"}} | protocol
        (pool,) = config(pools=[{"name": "main", "endpoints": [server.url], **fields}]).pools
        adapter = make(pool, Address(server.url))
        yield adapter, server
        await adapter.aclose()


def vertex(**options: Any) -> Object:
    return {"protocol": {"name": "vertex", "project": PROJECT, "location": LOCATION, **options}, "key": TOKEN}


async def chatted(body: bytes, **options: Any) -> tuple[Object, Gemini]:
    async with adapting(**options) as (adapter, server):
        answer = await adapter.call(openai.decode_chat(body), within())
        assert answer.form == OPENAI
        assert answer.body is not None
        completion = json.loads(answer.body)
        assert answer.usage.total_tokens == completion["usage"]["total_tokens"]
        return completion, server


async def chunks(body: bytes, **options: Any) -> tuple[list[Object], Answer]:
    async with adapting(**options) as (adapter, _):
        answer = await adapter.call(openai.decode_chat(body), within())
        written = b"".join([part async for part in answer])
    data = [sse.data_of(event) for event in written.strip().split(b"\n\n")]
    assert data.pop() == b"[DONE]"
    return [json.loads(each) for each in data if each], answer


async def test_a_chat() -> None:
    completion, server = await chatted(chat("hi there", max_tokens=5, temperature=0.5, stop=["x"]))
    (choice,) = completion["choices"]
    assert (choice["message"]["content"], choice["finish_reason"]) == ("hi there", "stop")
    assert completion["id"] == "rsp-stand-in"
    assert server.bodies[0]["generationConfig"] == {"temperature": 0.5, "maxOutputTokens": 5, "stopSequences": ["x"]}
    assert server.headers["x-goog-api-key"] == KEY
    assert server.path == f"/v1beta/models/{MODEL}:generateContent"


async def test_a_stream() -> None:
    options = {"stream": True, "stream_options": {"include_usage": True}}
    data, answer = await chunks(chat("one two three", **options))
    texts = [choice["delta"].get("content", "") for chunk in data for choice in chunk["choices"]]
    assert "".join(texts) == "one two three"
    assert [choice["finish_reason"] for chunk in data for choice in chunk["choices"]][-1] == "stop"
    assert data[-1]["choices"] == []
    assert data[-1]["usage"]["total_tokens"] == answer.usage.total_tokens
    assert sum("usage" in chunk and chunk["usage"] is not None for chunk in data) == 1


async def test_vertex_has_its_own_paths_and_tokens() -> None:
    completion, server = await chatted(chat(), **vertex())
    assert completion["choices"][0]["message"]["content"] == "hi there"
    place = f"/v1/projects/{PROJECT}/locations/{LOCATION}"
    assert server.path == f"{place}/publishers/google/models/{MODEL}:generateContent"
    assert server.headers["authorization"] == f"Bearer {TOKEN}"
    _, server = await chatted(chat(), model="endpoints/77", **vertex())
    assert server.path == f"{place}/endpoints/77:generateContent"
    _, server = await chatted(chat(), protocol={"name": "vertex"})
    assert server.path == f"/v1/publishers/google/models/{MODEL}:generateContent"


@pytest.mark.parametrize("gives_ids", [True, False])
@pytest.mark.parametrize("streams", [True, False])
@pytest.mark.parametrize("of_vertex", [True, False])
async def test_a_loop_of_tools_returns_signatures_and_ids(streams: bool, gives_ids: bool, of_vertex: bool) -> None:
    options = vertex() if of_vertex else {}
    messages: list[Object] = [{"role": "user", "content": "please call"}]
    async with adapting(**options) as (adapter, server):
        server.gives_ids = gives_ids
        for _ in range(2):
            body = {"model": "ours", "messages": messages, "tools": TOOLS, "stream": streams}
            answer = await adapter.call(openai.decode_chat(json.dumps(body).encode()), within())
            message = await _message(answer)
            calls = message["tool_calls"]
            assert [call["function"]["name"] for call in calls] == ["weather", "time"]
            assert [call["function"]["arguments"] for call in calls] == ["{}", '{"n":1,"text":"π/2"}']
            assert "thought_signature" in calls[0]["extra_content"]["google"]
            assert "extra_content" not in calls[1]
            results = [
                {"role": "tool", "tool_call_id": call["id"], "content": call["function"]["name"]} for call in calls
            ]
            messages += [message, *reversed(results), {"role": "user", "content": "call again"}]
        sent = server.bodies[1]["contents"]
        assert [content["role"] for content in sent] == ["user", "model", "user", "user"]
        assert [part["functionResponse"]["response"] for part in sent[2]["parts"]] == [
            {"output": "weather"},
            {"output": "time"},
        ]
        assert "skip" not in json.dumps(server.bodies)


async def _read(adapter: Adapter, body: bytes) -> None:
    """Send a chat, and read the answer to its end."""
    async for _ in await adapter.call(openai.decode_chat(body), within()):
        pass


async def _message(answer: Answer) -> Object:
    """The message of an answer, whole or streamed."""
    if answer.body is not None:
        message: Object = json.loads(answer.body)["choices"][0]["message"]
        return {name: value for name, value in message.items() if value is not None}
    message = {"role": "assistant", "content": None}
    async for piece in answer:
        for event in piece.strip().split(b"\n\n"):
            if (data := sse.data_of(event)) != b"[DONE]":
                for choice in json.loads(data)["choices"]:
                    message.setdefault("tool_calls", []).extend(choice["delta"].get("tool_calls", ()))
    for place, call in enumerate(message["tool_calls"]):
        assert call.pop("index") == place
    return message


async def test_a_history_of_another_model_has_the_value_that_skips_the_check() -> None:
    call = {"id": "toolu_1", "type": "function", "function": {"name": "weather", "arguments": '{"n": 1}'}}
    blocks = [{"type": "thinking", "thinking": "Hm.", "signature": "another's"}]
    messages = [
        {"role": "assistant", "content": "Let me see.", "tool_calls": [call], "thinking_blocks": blocks},
        {"role": "tool", "tool_call_id": "toolu_1", "content": "sunny"},
    ]
    _, server = await chatted(json.dumps({"model": "ours", "messages": messages, "tools": TOOLS}).encode())
    first, turn, _ = server.bodies[0]["contents"]
    assert first == {"role": "user", "parts": [{"text": "."}]}
    assert turn["parts"][1]["thoughtSignature"] == "skip_thought_signature_validator"


async def test_thoughts_are_reasoning_and_counted_beside_the_answer() -> None:
    completion, server = await chatted(chat("think well", reasoning_effort="low"))
    assert completion["choices"][0]["message"]["reasoning_content"] == "Let me see."
    assert completion["usage"]["completion_tokens"] == 5
    assert completion["usage"]["completion_tokens_details"] == {"reasoning_tokens": 3}
    assert server.bodies[0]["generationConfig"]["thinkingConfig"] == {"thinkingLevel": "low", "includeThoughts": True}


@pytest.mark.parametrize(
    ("model", "effort", "config"),
    [
        ("gemini-2.5-flash", "none", {"thinkingBudget": 0}),
        ("gemini-2.5-flash", "high", {"thinkingBudget": 24576, "includeThoughts": True}),
        ("gemini-2.5-pro", "none", {"thinkingBudget": 128}),
        ("gemini-3-pro-preview", "medium", {"thinkingLevel": "high", "includeThoughts": True}),
        ("gemini-3-flash", "none", {"thinkingLevel": "minimal"}),
        ("gemini-9-ultra", "minimal", {"thinkingLevel": "minimal", "includeThoughts": True}),
        ("gemini-2.0-flash", "high", None),
    ],
)
async def test_an_effort_is_the_model_s_own_word(model: str, effort: str, config: Object | None) -> None:
    async with adapting(model=model) as (adapter, server):
        call = within()
        request = openai.decode_chat(chat(reasoning_effort=effort))
        if model.startswith("gemini-9"):
            with pytest.raises(CallerError):  # the stand-in does not know this model's words
                await adapter.call(request, call)
        else:
            await adapter.call(request, call)
        assert server.bodies[0].get("generationConfig", {}).get("thinkingConfig") == config


@pytest.mark.parametrize(
    ("text", "kind", "code"),
    [
        ("!quota", CapacityError, None),
        ("!overloaded", CapacityError, None),
        ("!internal", BackendError, None),
        ("!long", ContextTooLong, "context_length_exceeded"),
        ("!slow-down", UpstreamTimeout, None),
        ("!denied", BackendError, "upstream_credential"),
        ("!malformed", BackendError, "upstream_bad_response"),
    ],
)
@pytest.mark.parametrize("streams", [True, False])
async def test_failures(text: str, kind: type[InferenceError], code: str | None, streams: bool) -> None:
    async with adapting() as (adapter, _):
        with pytest.raises(kind) as raised:
            await _read(adapter, chat(text, stream=streams))
    assert code in (None, raised.value.code)
    if text == "!quota":
        assert raised.value.retry_after == 17


@pytest.mark.parametrize("streams", [True, False])
@pytest.mark.parametrize(
    ("text", "finish", "own"),
    [("!blocked", "content_filter", None), ("!filtered", "content_filter", "SAFETY"), ("!new", "stop", "A_NEW_REASON")],
)
async def test_reasons_of_an_end(text: str, finish: str, own: str | None, streams: bool) -> None:
    if streams:
        data, _ = await chunks(chat(text, stream=True))
        choice = data[-1]["choices"][0]
    else:
        completion, _ = await chatted(chat(text))
        (choice,) = completion["choices"]
    assert choice["finish_reason"] == finish
    if text != "!blocked":
        assert choice.get("native_finish_reason") == own


@pytest.mark.parametrize(
    ("text", "kind"),
    [("!cut a b c", TransportError), ("!silent a b c", TransportError), ("!broken a b c", CapacityError)],
)
async def test_a_stream_without_its_end_is_broken(text: str, kind: type[InferenceError]) -> None:
    async with adapting() as (adapter, _):
        answer = await adapter.call(openai.decode_chat(chat(text, stream=True)), within())
        with pytest.raises(kind):
            async for _ in answer:
                pass
