"""Chats by Converse. The stand-in compares each request with AWS's own description."""

import json
from typing import Any

import pytest

from adapters.errors import (
    BackendError,
    CallerError,
)
from adapters.wire.openai import chat as openai
from tests.support.openai_answers import within
from tests.support.providers.bedrock import (
    KEY,
    NOVA,
    PROFILE,
    REQUEST,
)
from tests.support.providers.bedrock_adapters import (
    GUARDED,
    PIXEL,
    TIME,
    WEATHER,
    adapting,
    chat,
    chatted,
    chunks,
    events,
    message,
    messaged,
)

Object = dict[str, Any]


async def test_a_chat_is_answered_by_converse() -> None:
    async with adapting() as (adapter, server):
        answer = await adapter.call(openai.decode_chat(chat(temperature=0.5, stop=["X"], max_tokens=9)), within())
        completion = json.loads(answer.body or b"")
        assert completion["choices"][0]["message"] == {"role": "assistant", "content": "hi there", "refusal": None}
        assert completion["id"] == f"msg_{REQUEST}"
        assert server.paths == ["/model/eu.anthropic.claude-stand-in-v1%3A0/converse"]
        assert server.headers["authorization"] == f"Bearer {KEY}"
        assert server.bodies == [
            (
                "converse",
                {
                    "messages": [{"role": "user", "content": [{"text": "hi there"}]}],
                    "inferenceConfig": {"maxTokens": 9, "temperature": 0.5, "stopSequences": ["X"]},
                    "additionalModelResponseFieldPaths": ["/stop_sequence", "/delta/stop_sequence"],
                },
            )
        ]


async def test_an_arn_is_one_segment_of_the_path_and_is_not_shown_to_clients() -> None:
    async with adapting(model=PROFILE) as (adapter, server):
        answer = await adapter.call(openai.decode_chat(chat()), within())
        assert server.paths[0].startswith("/model/arn%3Aaws%3Abedrock%3Aeu-central-1%3A123456789012%3Aapplication-inf")
        assert server.paths[0].endswith("-inference-profile%2Fabc123/converse")
        assert b"123456789012" not in (answer.body or b"")


async def test_tools_and_their_results_keep_ids_order_and_arguments() -> None:
    calls = [
        {"id": "call_1", "type": "function", "function": {"name": "weather", "arguments": '{"city":"Bonn","n":1.0}'}},
        {"id": "call_2", "type": "function", "function": {"name": "time", "arguments": ""}},
    ]
    turns = [
        {"role": "system", "content": "Be kind."},
        {"role": "user", "content": "weather and time?"},
        {"role": "assistant", "content": None, "tool_calls": calls},
        {"role": "tool", "tool_call_id": "call_1", "content": "rain"},
        {"role": "tool", "tool_call_id": "call_2", "content": ""},
        {"role": "user", "content": "call"},
    ]
    completion, sent = await chatted(chat(turns, tools=[WEATHER, TIME], tool_choice="required"))
    assert sent["system"] == [{"text": "Be kind."}]
    assert sent["toolConfig"]["toolChoice"] == {"any": {}}
    assert [entry["toolSpec"]["name"] for entry in sent["toolConfig"]["tools"]] == ["weather", "time"]
    assert sent["messages"][1]["content"] == [
        {"toolUse": {"toolUseId": "call_1", "name": "weather", "input": {"city": "Bonn", "n": 1.0}}},
        {"toolUse": {"toolUseId": "call_2", "name": "time", "input": {}}},
    ]
    assert sent["messages"][2]["content"] == [
        {"toolResult": {"toolUseId": "call_1", "content": [{"text": "rain"}]}},
        {"toolResult": {"toolUseId": "call_2", "content": [{"text": "."}]}},
        {"text": "call"},
    ]
    choice = completion["choices"][0]
    assert choice["finish_reason"] == "tool_calls"
    assert [(each["id"], each["function"]) for each in choice["message"]["tool_calls"]] == [
        ("tooluse_0", {"name": "weather", "arguments": "{}"}),
        ("tooluse_1", {"name": "time", "arguments": '{"n":1,"x":1.0}'}),
    ]


@pytest.mark.parametrize("fields", [{}, {"tools": [WEATHER], "tool_choice": "none"}])
async def test_calls_without_tools_become_texts_so_that_the_model_calls_none(fields: Object) -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": '{"city":"Bonn"}'}}
    turns = [
        {"role": "user", "content": "weather?"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "rain"},
        {"role": "user", "content": "so?"},
    ]
    _, sent = await chatted(chat(turns, **fields))
    assert "toolConfig" not in sent
    assert [message["content"] for message in sent["messages"]] == [
        [{"text": "weather?"}],
        [{"text": '[Call c1 of weather: {"city":"Bonn"}]'}],
        [{"text": "[Result of c1: rain]"}, {"text": "so?"}],
    ]


async def test_a_long_name_of_a_tool_is_shortened_for_bedrock_alone() -> None:
    name = "mcp__a_server_with_a_long_name__" + "a_tool_with_a_long_name_too" * 2
    tool = {"type": "function", "function": {"name": name, "parameters": {"type": "object"}}}
    completion, sent = await chatted(
        chat("call", tools=[tool], tool_choice={"type": "function", "function": {"name": name}})
    )
    assert len(sent["toolConfig"]["toolChoice"]["tool"]["name"]) == 64
    assert completion["choices"][0]["message"]["tool_calls"][0]["function"]["name"] == name
    parts, _ = await chunks(chat("call", tools=[tool], stream=True))
    calls = [call for part in parts for choice in part["choices"] for call in choice["delta"].get("tool_calls", ())]
    assert calls[0]["function"]["name"] == name
    native, _, _ = await messaged(message("call", tools=[{"name": name, "input_schema": {"type": "object"}}]))
    assert native["content"][1]["name"] == name


async def test_images_and_documents_are_sent_with_their_formats() -> None:
    parts = [
        {"type": "image_url", "image_url": {"url": f"data:image/jpg;base64,{PIXEL}"}},
        {
            "type": "file",
            "file": {"filename": "Bilanz_2026.v2.pdf", "file_data": f"data:application/pdf;base64,{PIXEL}"},
        },
        {"type": "file", "file": {"filename": "Bilanz 2026 v2.pdf", "file_data": f"data:text/csv;base64,{PIXEL}"}},
    ]
    _, sent = await chatted(chat(parts))
    assert sent["messages"][0]["content"] == [
        {"image": {"format": "jpeg", "source": {"bytes": PIXEL}}},
        {"document": {"format": "pdf", "name": "Bilanz 2026 v2", "source": {"bytes": PIXEL}}},
        {"document": {"format": "csv", "name": "Bilanz 2026 v2 2", "source": {"bytes": PIXEL}}},
        {"text": "."},
    ]


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"text": [{"type": "image_url", "image_url": {"url": "https://x.example/a.png"}}]}, "messages"),
        ({"text": [{"type": "image_url", "image_url": {"url": "data:image/tiff;base64,AAAA"}}]}, "messages"),
        ({"text": [{"type": "file", "file": {"file_data": "data:application/zip;base64,AAAA"}}]}, "messages"),
        ({"temperature": 1.5}, "temperature"),
        ({"top_p": 2}, "top_p"),
        ({"n": 2}, "n"),
        ({"logprobs": True}, "logprobs"),
        ({"frequency_penalty": 1}, "frequency_penalty"),
        ({"response_format": {"type": "json_object"}}, "response_format"),
        ({"max_tokens": 0}, "max_tokens"),
    ],
)
async def test_a_field_that_would_change_the_answer_is_refused_by_its_name(fields: Object, param: str) -> None:
    with pytest.raises(CallerError) as failure:
        await chatted(chat(**fields))
    assert failure.value.param == param
    assert f"`{param}" in failure.value.message


async def test_harmless_fields_are_left_out_and_reported() -> None:
    call = within()
    fields = {"user": "u1", "store": True, "prompt_cache_key": "k", "seed": 7, "parallel_tool_calls": False}
    await chatted(chat(tools=[WEATHER], reasoning_effort="high", top_k=4, **fields), call, model=NOVA)
    assert set(call.ignored.ignored) == {"user", "store", "prompt_cache_key", "seed", "parallel_tool_calls"}


async def test_each_maker_has_its_own_fields_of_thinking() -> None:
    _, claude = await chatted(chat("think", thinking={"type": "enabled", "budget_tokens": 1024}, top_k=4))
    assert claude["additionalModelRequestFields"] == {
        "top_k": 4,
        "thinking": {"type": "enabled", "budget_tokens": 1024},
    }
    _, effort = await chatted(chat(reasoning_effort="low"))
    assert effort["outputConfig"] == {"effort": "low"}
    _, nova = await chatted(chat(reasoning_effort="high", top_k=4), model=NOVA)
    assert nova["additionalModelRequestFields"] == {
        "inferenceConfig": {"topK": 4},
        "reasoningConfig": {"type": "enabled", "maxReasoningEffort": "high"},
    }
    _, single = await chatted(chat(tools=[WEATHER], parallel_tool_calls=False))
    assert single["additionalModelRequestFields"] == {
        "tool_choice": {"type": "auto", "disable_parallel_tool_use": True}
    }


async def test_a_schema_a_tier_and_the_pool_s_options_are_sent() -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "additionalProperties": False}
    given = {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema}}
    options: Object = {"latency": "optimized", "betas": ["context-1m-2025-08-07"], **GUARDED}
    _, sent = await chatted(chat(response_format=given, service_tier="flex"), **options)
    text = sent["outputConfig"]["textFormat"]
    assert json.loads(text["structure"]["jsonSchema"]["schema"]) == schema
    assert sent["serviceTier"] == {"type": "flex"}
    assert sent["performanceConfig"] == {"latency": "optimized"}
    assert sent["guardrailConfig"] == {"guardrailIdentifier": "abc123", "guardrailVersion": "2"}
    assert sent["additionalModelRequestFields"] == {"anthropic_beta": ["context-1m-2025-08-07"]}


async def test_a_verdict_of_the_guardrail_is_a_content_filter() -> None:
    completion, _ = await chatted(chat("blocked"), **GUARDED)
    assert completion["choices"][0]["finish_reason"] == "content_filter"
    native, _, _ = await messaged(message("blocked"), **GUARDED)
    assert native["stop_reason"] == "refusal"
    parts, _ = await chunks(chat("blocked", stream=True), **GUARDED)
    assert parts[-1]["choices"][0]["finish_reason"] == "content_filter"


async def test_an_answer_that_the_model_broke_is_an_error() -> None:
    with pytest.raises(BackendError, match="malformed_model_output"):
        await chatted(chat("malformed"))
    with pytest.raises(BackendError, match="malformed_model_output"):
        await chunks(chat("malformed", stream=True))


async def test_the_stop_text_of_the_client_is_reported() -> None:
    completion, _ = await chatted(chat("a STOP b", stop="STOP"))
    assert completion["choices"][0]["stop_reason"] == "STOP"
    native, _, _ = await messaged(message("a STOP b", stop_sequences=["STOP"]))
    assert (native["stop_reason"], native["stop_sequence"]) == ("stop_sequence", "STOP")
    streamed, _ = await events(message("a STOP b", stop_sequences=["STOP"], stream=True))
    assert streamed[-2]["delta"] == {"stop_reason": "stop_sequence", "stop_sequence": "STOP"}


async def test_a_completion_is_a_chat_of_one_turn() -> None:
    async with adapting() as (adapter, _):
        body = json.dumps({"model": "ours", "prompt": "hi there", "max_tokens": 9}).encode()
        answer = await adapter.call(openai.decode_completion(body), within())
    assert json.loads(answer.body or b"")["choices"][0]["text"] == "hi there"
