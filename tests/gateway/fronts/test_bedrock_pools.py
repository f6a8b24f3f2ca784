"""Official clients of every door over a pool of Bedrock: loops of tools with an image and thoughts, usage, refusals."""

import base64
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anthropic
import openai
import pytest

from adapters.registry import Address, make
from tests.support.doors import Before, Door, door
from tests.support.gateways import config
from tests.support.providers.bedrock import CLAUDE, KEY, TITAN_V2, Bedrock, bedrock

Object = dict[str, Any]
PIXEL = base64.b64encode(b"\x89PNG\r\n\x1a\n").decode()
WEATHER: Any = {"name": "weather", "parameters": {"type": "object", "properties": {"n": {"type": "integer"}}}}
THINKING: Any = {"type": "enabled", "budget_tokens": 1024}


@asynccontextmanager
async def opened(model: str = CLAUDE) -> AsyncIterator[tuple[Door, Bedrock]]:
    async with bedrock() as server:
        pools: Any = [{"name": "main", "endpoints": [server.url], "key": KEY, "model": model, "protocol": "bedrock"}]
        adapter = make(config(pools=pools).pools[0], Address(server.url))
        async with door(Before(adapter), pools=pools) as d:
            yield d, server
        await adapter.aclose()


async def test_a_loop_of_tools_by_chats() -> None:
    tool: Any = {"type": "function", "function": WEATHER}
    image: Any = [
        {"type": "text", "text": "think, look and call"},
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PIXEL}"}},
    ]
    messages: list[Any] = [{"role": "user", "content": image}]
    async with opened() as (d, server):
        for stream in (False, True):
            fields: Object = {"model": "chat", "tools": [tool, {**tool, "function": {**WEATHER, "name": "b"}}]}
            fields["extra_body"] = {"thinking": THINKING}
            if stream:
                async with d.openai.chat.completions.stream(messages=messages, **fields) as events:
                    completion: Any = await events.get_final_completion()
            else:
                completion = await d.openai.chat.completions.create(messages=messages, **fields)
            choice = completion.choices[0]
            assert choice.finish_reason == "tool_calls"
            assert [call.function.name for call in choice.message.tool_calls] == ["weather", "b"]
            assert json.loads(choice.message.tool_calls[1].function.arguments) == {"n": 1, "x": 1.0}
            whole: Any = choice.message.model_dump(exclude_none=True)
            results = [{"role": "tool", "tool_call_id": each["id"], "content": "rain"} for each in whole["tool_calls"]]
            turns: Any = [*messages, {k: v for k, v in whole.items() if k != "parsed"}, *results]
            after = await d.openai.chat.completions.create(messages=turns, **fields)
            assert after.choices[0].message.content == "what the tool found"
        kinds = [[next(iter(block)) for block in each["content"]] for each in server.bodies[1][1]["messages"]]
        assert kinds == [
            ["text", "image"],
            ["reasoningContent", "text", "toolUse", "toolUse"],
            ["toolResult", "toolResult"],
        ]


async def test_a_loop_of_tools_by_messages_with_signed_thoughts_and_a_cache() -> None:
    image: Any = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PIXEL}}
    mark: Any = {"cache_control": {"type": "ephemeral"}}
    messages: list[Any] = [{"role": "user", "content": [image, {"type": "text", "text": "think redact call", **mark}]}]
    fields: Any = {"model": "chat", "max_tokens": 2000, "thinking": THINKING}
    fields["tools"] = [{"name": "weather", "input_schema": WEATHER["parameters"]}]
    async with opened() as (d, server):
        whole = await d.anthropic.messages.create(messages=messages, **fields)
        async with d.anthropic.messages.stream(messages=messages, **fields) as stream:
            streamed = await stream.get_final_message()
        assert [block.model_dump() for block in streamed.content] == [block.model_dump() for block in whole.content]
        assert [block.type for block in whole.content] == ["thinking", "redacted_thinking", "text", "tool_use"]
        assert (streamed.usage.cache_read_input_tokens, streamed.usage.cache_creation_input_tokens) == (5, 7)
        call: Any = whole.content[-1]
        result: Any = [{"type": "tool_result", "tool_use_id": call.id, "content": [image]}]
        turns = [*messages, {"role": "assistant", "content": whole.content}, {"role": "user", "content": result}]
        after = await d.anthropic.messages.create(messages=turns, **fields)
        assert after.stop_reason == "end_turn"
        assert server.bodies[-1][1]["messages"][2]["content"] == [
            {
                "toolResult": {
                    "toolUseId": call.id,
                    "content": [{"image": {"format": "png", "source": {"bytes": PIXEL}}}],
                }
            }
        ]
        count = await d.anthropic.messages.count_tokens(
            model="chat", messages=messages, thinking=THINKING, tools=fields["tools"]
        )
        assert count.input_tokens == whole.usage.input_tokens
    for record in d.rig.log.records[:2]:
        assert record.usage is not None
        assert (record.usage.prompt_tokens, record.usage.cached_tokens, record.usage.cache_write_tokens) == (
            whole.usage.input_tokens + 12,
            5,
            7,
        )
        assert record.usage.exact


async def test_responses_completions_and_embeddings() -> None:
    async with opened() as (d, _):
        response = await d.openai.responses.create(model="chat", input="hi there")
        assert response.output_text == "hi there"
        pieces = [
            event.delta
            async for event in await d.openai.responses.create(model="chat", input="a b c", stream=True)
            if event.type == "response.output_text.delta"
        ]
        assert "".join(pieces) == "a b c"
        completion = await d.openai.completions.create(model="chat", prompt="hi there")
        assert completion.choices[0].text == "hi there"
    async with opened(TITAN_V2) as (d, _):
        vectors = await d.openai.embeddings.create(model="chat", input=["a", "b"], dimensions=8)
        assert [len(entry.embedding) for entry in vectors.data] == [8, 8]


async def test_a_field_that_was_left_out_is_reported_and_a_refusal_has_the_door_s_names() -> None:
    async with opened() as (d, _):
        raw = await d.openai.chat.completions.with_raw_response.create(
            model="chat", messages=[{"role": "user", "content": "hi"}], user="u1"
        )
        assert raw.headers["x-headrace-ignored"] == "user"
        with pytest.raises(openai.BadRequestError, match="`temperature`"):
            await d.openai.chat.completions.create(
                model="chat", messages=[{"role": "user", "content": "hi"}], temperature=1.7
            )
        image: Any = {"type": "image", "source": {"type": "url", "url": "https://x.example/a.png"}}
        with pytest.raises(anthropic.BadRequestError, match="`messages` has an image by its address"):
            await d.anthropic.messages.create(
                model="chat", max_tokens=9, messages=[{"role": "user", "content": [image]}]
            )


async def test_refusals_for_their_content_are_sent_once_and_open_no_breaker() -> None:
    async with opened() as (d, server):
        for _ in range(12):
            with pytest.raises(openai.BadRequestError):
                await d.openai.chat.completions.create(model="chat", messages=[{"role": "user", "content": "!content"}])
        assert len(server.paths) == 12
        after = await d.openai.chat.completions.create(model="chat", messages=[{"role": "user", "content": "hi"}])
        assert after.choices[0].message.content == "hi"


async def test_an_exception_within_a_stream_reaches_the_client_as_an_error() -> None:
    async with opened() as (d, _):
        stream = await d.openai.chat.completions.create(
            model="chat", messages=[{"role": "user", "content": "!mid ThrottlingException b c"}], stream=True
        )
        with pytest.raises(openai.APIError):
            async for _ in stream:
                pass
        request: Any = {"role": "user", "content": "!mid InternalServerException b c"}
        with pytest.raises(anthropic.APIError):
            async with d.anthropic.messages.stream(model="chat", max_tokens=9, messages=[request]) as events:
                await events.get_final_message()
