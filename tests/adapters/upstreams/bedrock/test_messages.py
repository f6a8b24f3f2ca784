"""Messages by Converse lose nothing: thoughts, signatures, cache points and ids. Counts of tokens."""

import json
from typing import Any

import pytest

from adapters.errors import Unsupported
from adapters.types import Usage
from adapters.wire.anthropic import requests as wire
from adapters.wire.openai import chat as openai
from tests.support.openai_answers import within
from tests.support.providers.bedrock import NOVA, PROFILE
from tests.support.providers.bedrock_adapters import adapting, chat, chatted, message, messaged
from tests.support.providers.bedrock_shapes import signature

Object = dict[str, Any]


async def test_a_message_loses_no_thoughts_signatures_cache_points_and_ids() -> None:
    thought = {"type": "thinking", "thinking": "Hm.", "signature": signature("Hm.")}
    redacted = {"type": "redacted_thinking", "data": "aGlkZGVu"}
    use = {"type": "tool_use", "id": "toolu_01A", "name": "weather", "input": {"city": "Bonn"}}
    mark = {"cache_control": {"type": "ephemeral", "ttl": "1h"}}
    result = {"type": "tool_result", "tool_use_id": "toolu_01A", "content": "no", "is_error": True, **mark}
    turns = [
        {"role": "user", "content": "weather?"},
        {"role": "assistant", "content": [thought, redacted, use]},
        {"role": "user", "content": [result, {"type": "text", "text": "and?"}]},
    ]
    tools = [{"name": "weather", "input_schema": {"type": "object"}, "cache_control": {"type": "ephemeral"}}]
    system = [{"type": "text", "text": "Be kind.", **mark}]
    thinking = {"type": "enabled", "budget_tokens": 2000}
    native, sent, answer = await messaged(message(turns, tools=tools, system=system, thinking=thinking, max_tokens=9))
    hour = {"cachePoint": {"type": "default", "ttl": "1h"}}
    assert sent["system"] == [{"text": "Be kind."}, hour]
    assert sent["toolConfig"]["tools"][1] == {"cachePoint": {"type": "default"}}
    assert sent["messages"][1]["content"] == [
        {"reasoningContent": {"reasoningText": {"text": "Hm.", "signature": signature("Hm.")}}},
        {"reasoningContent": {"redactedContent": "aGlkZGVu"}},
        {"toolUse": {"toolUseId": "toolu_01A", "name": "weather", "input": {"city": "Bonn"}}},
    ]
    assert sent["messages"][2]["content"] == [
        {"toolResult": {"toolUseId": "toolu_01A", "content": [{"text": "no"}], "status": "error"}},
        hour,
        {"text": "and?"},
    ]
    assert sent["additionalModelRequestFields"] == {"thinking": thinking}
    usage = native["usage"]
    assert (usage["cache_read_input_tokens"], usage["cache_creation_input_tokens"]) == (5, 21)
    assert usage["cache_creation"] == {"ephemeral_1h_input_tokens": 21}
    prompt = usage["input_tokens"] + 26
    assert answer.usage == Usage(
        prompt,
        usage["output_tokens"],
        exact=True,
        bytes=answer.usage.bytes,
        cached_tokens=5,
        cache_write_tokens=21,
        cache_hour_tokens=21,
    )


async def test_thoughts_of_an_answer_return_with_the_next_request() -> None:
    for body in (message("think redact", thinking={"type": "adaptive"}),):
        native, _, _ = await messaged(body)
        turns = [
            {"role": "user", "content": "think redact"},
            {"role": "assistant", "content": native["content"]},
            {"role": "user", "content": "go on"},
        ]
        _, sent, _ = await messaged(message(turns, thinking={"type": "adaptive"}))
        assert [next(iter(block)) for block in sent["messages"][1]["content"]] == ["reasoningContent"] * 2 + ["text"]
    completion, _ = await chatted(chat("think redact", thinking={"type": "adaptive"}))
    turns = [
        {"role": "user", "content": "x"},
        completion["choices"][0]["message"],
        {"role": "user", "content": "go on"},
    ]
    _, sent = await chatted(chat(turns, thinking={"type": "adaptive"}))
    assert [next(iter(block)) for block in sent["messages"][1]["content"]] == ["reasoningContent"] * 2 + ["text"]


async def test_betas_that_bedrock_lacks_are_left_out_and_reported() -> None:
    call = within()
    betas = "context-1m-2025-08-07,claude-code-20250219"
    _, sent, _ = await messaged(message(), call, betas=betas)
    assert sent["additionalModelRequestFields"] == {"anthropic_beta": ["context-1m-2025-08-07"]}
    assert call.ignored.ignored == ["betas"]


async def test_the_scope_of_cache_marks_is_left_out_and_reported() -> None:
    mark = {"cache_control": {"type": "ephemeral", "scope": "global"}}
    for body in (
        message(system=[{"type": "text", "text": "Be kind.", **mark}]),
        message(tools=[{"name": "look", "input_schema": {"type": "object"}, **mark}]),
        message(**mark),
    ):
        _, sent, _ = await messaged(body, call := within())
        assert call.ignored.ignored == ["cache_control.scope"]
        assert (json.dumps(sent).count("cachePoint"), "scope" in json.dumps(sent)) == (1, False)


async def test_neighbours_of_one_role_become_one_turn_and_blank_ones_a_dot() -> None:
    turns = [
        {"role": "user", "content": " "},
        {"role": "assistant", "content": [{"type": "thinking", "thinking": "x", "signature": ""}]},
        {"role": "user", "content": "a"},
        {"role": "user", "content": [{"type": "text", "text": "b"}]},
    ]
    _, sent, _ = await messaged(message(turns))
    assert sent["messages"] == [{"role": "user", "content": [{"text": "a"}, {"text": "b"}]}]
    _, blank, _ = await messaged(message("  "))
    assert blank["messages"] == [{"role": "user", "content": [{"text": "."}]}]


async def test_tokens_are_counted() -> None:
    async with adapting() as (adapter, server):
        native = await adapter.call(wire.decode_count(message("hi there")), within())
        ours = await adapter.call(wire.count_of(openai.decode_chat(chat("hi there"))), within())
        assert json.loads(native.body or b"") == json.loads(ours.body or b"") == {"input_tokens": 8}
        assert [operation for operation, _ in server.bodies] == ["count-tokens"] * 2
        assert server.bodies[0][1] == {
            "input": {"converse": {"messages": [{"role": "user", "content": [{"text": "hi there"}]}]}}
        }


@pytest.mark.parametrize("model", [NOVA, PROFILE])
async def test_a_model_that_cannot_be_counted_is_no_failure(model: str) -> None:
    """The gateway then estimates the tokens."""
    async with adapting(model=model) as (adapter, _):
        with pytest.raises(Unsupported, match="do not count tokens"):
            await adapter.call(wire.decode_count(message()), within())
