"""The adapter for Anthropic's Messages against a server that is as strict as the API's own description."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from msgspec import Raw

from adapters.base import Adapter, Answer
from adapters.errors import (
    AccountRefused,
    BackendError,
    CallerError,
    CapacityError,
    ContextTooLong,
    InferenceError,
    ServerFailed,
    TooLarge,
    TransportError,
    Unsupported,
    UpstreamTimeout,
)
from adapters.http1.client import Client
from adapters.registry import Address, make
from adapters.requests import ModelRequest
from adapters.types import ANTHROPIC, OPENAI, Usage
from adapters.upstreams.anthropic.client import AnthropicAdapter
from adapters.wire import sse
from adapters.wire.anthropic import requests as wire
from adapters.wire.openai import chat as openai
from tests.adapters.http1.scripted import Peer, answers, scripted
from tests.servers.stand_ins.anthropic import KEY, MODEL, Anthropic, anthropic
from tests.support.gateways import config, infer
from tests.support.openai_answers import HEAD, http, piece, within

Object = dict[str, Any]


def message(text: Any = "hi there", **fields: Any) -> bytes:
    body = {"model": "ours", "max_tokens": 50, "messages": [{"role": "user", "content": text}], **fields}
    return json.dumps(body).encode()


def chat(text: Any = "hi there", **fields: Any) -> bytes:
    return json.dumps({"model": "ours", "messages": [{"role": "user", "content": text}], **fields}).encode()


@asynccontextmanager
async def adapting(key: str = KEY, model: str = MODEL, **options: Any) -> AsyncIterator[tuple[Adapter, Anthropic]]:
    """An adapter for a scripted server, built from a pool's section."""
    async with anthropic() as server:
        fields = {"key": key, "model": model, "protocol": {"name": "anthropic", **options}}
        (pool,) = config(pools=[{"name": "main", "endpoints": [server.url], **fields}]).pools
        adapter = make(pool, Address(server.url))
        yield adapter, server
        await adapter.aclose()


async def native(body: bytes, betas: str | None = None, **options: Any) -> tuple[Answer, Anthropic]:
    async with adapting(**options) as (adapter, server):
        return await adapter.call(wire.decode_message(body, betas), within()), server


async def chatted(body: bytes, **options: Any) -> tuple[Object, Anthropic]:
    async with adapting(**options) as (adapter, server):
        answer = await adapter.call(openai.decode_chat(body), within())
        assert answer.form == OPENAI
        assert answer.body is not None
        completion = json.loads(answer.body)
        assert answer.usage.total_tokens == completion["usage"]["total_tokens"]
        return completion, server


async def chunks(body: bytes) -> tuple[list[Object], Answer]:
    async with adapting() as (adapter, _):
        answer = await adapter.call(openai.decode_chat(body), within())
        written = b"".join([part async for part in answer])
    data = [sse.data_of(event) for event in written.strip().split(b"\n\n")]
    assert data.pop() == b"[DONE]"
    return [json.loads(each) for each in data if each], answer


async def whole(adapter: Adapter, request: ModelRequest) -> None:
    """Send the request and read the answer to its end."""
    async for _ in await adapter.call(request, within()):
        pass


# ── a client of the same wire ─────────────────────────────────────────────────────────────────────────────


async def test_a_client_of_the_same_wire_has_its_own_bytes_sent_on() -> None:
    fields = {"system": [{"type": "text", "text": "Be kind.", "cache_control": {"type": "ephemeral"}}], "top_k": 3}
    answer, server = await native(message(**fields), betas="a-1, b-2")
    assert answer.form == ANTHROPIC
    assert answer.body is not None
    body = json.loads(answer.body)
    assert body["content"] == [{"type": "text", "text": "hi there"}]
    cost = body["usage"]
    assert cost["cache_read_input_tokens"] == 5
    tokens = cost["input_tokens"] + 5, cost["output_tokens"]
    assert answer.usage == Usage(*tokens, exact=True, bytes=len(answer.body), cached_tokens=5)
    (sent,) = server.bodies
    assert sent == {**json.loads(message(**fields)), "model": MODEL}
    assert (server.headers["anthropic-beta"], server.headers["x-api-key"]) == ("a-1,b-2", KEY)
    assert "authorization" not in server.headers


async def test_the_pool_s_betas_go_with_the_client_s() -> None:
    async with adapting(betas=("z-9", "a-1")) as (adapter, server):
        await adapter.call(wire.decode_message(message(), "a-1,b-2"), within())
        assert server.headers["anthropic-beta"] == "z-9,a-1,b-2"


async def test_events_of_a_stream_are_forwarded_unchanged_and_counted() -> None:
    async with adapting() as (adapter, _):
        answer = await adapter.call(wire.decode_message(message(stream=True)), within())
        assert answer.form == ANTHROPIC
        events = b"".join([part async for part in answer]).decode().strip().split("\n\n")
    names = [event.split("\n")[0].removeprefix("event: ") for event in events]
    assert names == [
        "message_start", "ping", "content_block_start", "content_block_delta", "content_block_delta",
        "content_block_stop", "message_delta", "message_stop",
    ]  # fmt: skip
    assert answer.usage.exact
    assert f'"output_tokens": {answer.usage.completion_tokens}' in events[-2]


async def test_an_abandoned_stream_counts_the_tokens_that_were_sent() -> None:
    async with adapting() as (adapter, _):
        answer = await adapter.call(wire.decode_message(message("slow " * 30, stream=True)), within())
        received = b""
        while b"content_block_delta" not in received:
            received += await answer.__anext__()
        await answer.aclose()
    assert answer.usage.completion_tokens >= 1
    assert not answer.usage.exact
    assert answer.usage.prompt_tokens > 0


async def test_tokens_are_counted_by_the_server() -> None:
    async with adapting() as (adapter, server):
        answer = await adapter.call(wire.decode_count(message(max_tokens=3)), within())
        assert answer.body is not None
        assert json.loads(answer.body)["input_tokens"] > 3
        assert answer.usage == Usage(exact=True)
    assert "max_tokens" not in server.bodies[0]


@pytest.mark.parametrize("status", [404, 405, 501])
async def test_a_server_without_token_counts_is_unsupported(status: int) -> None:
    async with scripted(answers(http(b"{}", status=status))) as upstream:
        adapter = AnthropicAdapter(Client(upstream.url))
        with pytest.raises(Unsupported):
            await adapter.call(wire.decode_count(message()), within())
        await adapter.aclose()


async def test_a_routes_changes_are_sent() -> None:
    async with adapting() as (adapter, server):
        request = wire.decode_message(message(stop_sequences=["x"], metadata={"user_id": "u"}))
        fields = request.codec.fields(request)
        assert json.loads(bytes(fields["stop"])) == ["x"]
        assert json.loads(bytes(fields["user"])) == "u"
        del fields["max_tokens"]
        changed = {"stop": '"y"', "user": '"v"', "max_completion_tokens": "7", "temperature": "0"}
        fields |= {name: Raw(value.encode()) for name, value in changed.items()}
        request = request.codec.rewrite(request, fields)
        assert request.max_tokens == 7
        assert request.codec.is_deterministic(request)
        await adapter.call(request, within())
    sent = server.bodies[0]
    assert (sent["stop_sequences"], sent["metadata"], sent["max_tokens"]) == (["y"], {"user_id": "v"}, 7)


# ── a chat ────────────────────────────────────────────────────────────────────────────────────────────────

TOOLS = [{"type": "function", "function": {"name": name, "parameters": {"type": "object"}}} for name in ("f", "g")]


async def test_a_chat_is_answered_as_one() -> None:
    completion, server = await chatted(chat(user="u", stop=["zzz"], temperature=0.5), max_tokens=77)
    assert completion["object"] == "chat.completion"
    (choice,) = completion["choices"]
    assert choice["message"]["content"] == "hi there"
    assert choice["finish_reason"] == "stop"
    assert completion["usage"]["prompt_tokens_details"] == {"cached_tokens": 0, "cache_write_tokens": 0}
    (sent,) = server.bodies
    assert (sent["max_tokens"], sent["metadata"], sent["stop_sequences"]) == (77, {"user_id": "u"}, ["zzz"])


async def test_the_ends_that_an_answer_may_have() -> None:
    completion, _ = await chatted(chat("one two three", max_tokens=2))
    assert completion["choices"][0]["finish_reason"] == "length"
    completion, _ = await chatted(chat("one STOP three", stop="STOP"))
    assert (completion["choices"][0]["finish_reason"], completion["choices"][0]["stop_reason"]) == ("stop", "STOP")
    assert completion["choices"][0]["message"]["content"] == "one "


async def test_tools_are_called_and_their_results_brought_back() -> None:
    completion, _ = await chatted(chat("call them", tools=TOOLS, tool_choice="required"))
    turn = completion["choices"][0]["message"]
    assert completion["choices"][0]["finish_reason"] == "tool_calls"
    calls = [(call["id"], call["function"]["name"], call["function"]["arguments"]) for call in turn["tool_calls"]]
    assert calls == [("toolu_0", "f", "{}"), ("toolu_1", "g", '{"n":1}')]
    results = [{"role": "tool", "tool_call_id": call[0], "content": f"found by {call[1]}"} for call in calls]
    messages = [{"role": "user", "content": "call them"}, turn, *results]
    completion, server = await chatted(json.dumps({"model": "ours", "messages": messages, "tools": TOOLS}).encode())
    assert completion["choices"][0]["message"]["content"] == "what the tool found"
    blocks = server.bodies[0]["messages"][2]["content"]
    assert [block["tool_use_id"] for block in blocks] == ["toolu_0", "toolu_1"]


async def test_thoughts_have_their_signature() -> None:
    completion, _ = await chatted(chat("think", thinking={"type": "adaptive"}))
    turn = completion["choices"][0]["message"]
    assert turn["reasoning_content"] == "Let me see."
    messages = [{"role": "user", "content": "think"}, turn, {"role": "user", "content": "more"}]
    completion, server = await chatted(json.dumps({"model": "ours", "messages": messages}).encode())
    assert server.bodies[0]["messages"][1]["content"][0]["thinking"] == "Let me see."
    assert completion["choices"][0]["message"]["content"] == "more"


async def test_a_schema_is_sent_in_the_apis_form() -> None:
    response_format = {"type": "json_schema", "json_schema": {"name": "n", "schema": {"type": "object"}}}
    completion, server = await chatted(chat(response_format=response_format, reasoning_effort="minimal"))
    assert json.loads(completion["choices"][0]["message"]["content"]) == {"said": "hi there"}
    assert server.bodies[0]["output_config"] == {
        "effort": "low",
        "format": {"type": "json_schema", "schema": {"type": "object"}},
    }


async def test_a_streamed_chat() -> None:
    streamed, answer = await chunks(chat("a b c", stream=True, stream_options={"include_usage": True}))
    assert streamed[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert "".join(c["choices"][0]["delta"].get("content", "") for c in streamed if c["choices"]) == "a b c"
    assert streamed[-2]["choices"][0]["finish_reason"] == "stop"
    assert streamed[-1]["choices"] == []
    assert streamed[-1]["usage"]["completion_tokens"] == answer.usage.completion_tokens > 1
    assert answer.usage.exact
    assert {c["id"] for c in streamed} == {"msg_stand_in"}


async def test_a_chat_without_include_usage_has_no_usage() -> None:
    streamed, _ = await chunks(chat("a b c", stream=True))
    assert not any("usage" in c for c in streamed)


async def test_streamed_calls_of_several_tools() -> None:
    streamed, _ = await chunks(chat("call", stream=True, tools=TOOLS))
    arguments: dict[int, list[str]] = {}
    for c in streamed:
        for call in c["choices"][0]["delta"].get("tool_calls", ()):
            arguments.setdefault(call["index"], []).append(call["function"]["arguments"])
    assert {index: "".join(parts) for index, parts in arguments.items()} == {0: "{}", 1: '{"n": 1}'}
    assert streamed[-1]["choices"][0]["finish_reason"] == "tool_calls"


async def test_streamed_thoughts() -> None:
    streamed, _ = await chunks(chat("think", stream=True, thinking={"type": "enabled", "budget_tokens": 1024}))
    deltas = [c["choices"][0]["delta"] for c in streamed]
    assert "".join(delta.get("reasoning_content", "") for delta in deltas) == "Let me see."
    (signed,) = [delta["thinking_blocks"][0] for delta in deltas if "thinking_blocks" in delta]
    assert signed["signature"]


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"n": 2}, "n"),
        ({"logprobs": True}, "logprobs"),
        ({"frequency_penalty": 1}, "frequency_penalty"),
        ({"response_format": {"type": "json_object"}}, "response_format"),
        ({"reasoning_effort": "much"}, "reasoning_effort"),
        ({"tools": [{"type": "function", "function": {}}]}, "tools"),
        ({"tool_choice": "sometimes", "tools": TOOLS}, "tool_choice"),
        ({"messages": [{"role": "user", "content": [{"type": "input_audio", "input_audio": {}}]}]}, "messages"),
        ({"messages": [{"role": "tool", "content": "x"}]}, "messages"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": ""}}]}]}, "messages"),
        ({"messages": [{"role": "user", "content": [{"type": "file", "file": {"file_id": "f"}}]}]}, "messages"),
        ({"messages": [{"role": "assistant"}]}, "messages"),
    ],
)  # fmt: skip
async def test_fields_that_the_wire_lacks_are_refused(fields: Object, param: str) -> None:
    async with adapting() as (adapter, server):
        with pytest.raises(CallerError) as refused:
            await adapter.call(openai.decode_chat(chat(**fields)), within())
        assert refused.value.param == param
    assert server.bodies == []


async def test_other_requests_are_refused() -> None:
    async with adapting() as (adapter, _):
        for request in (
            openai.decode_completion(b'{"model":"m","prompt":"x"}'),
            openai.decode_embedding(b'{"model":"m","input":"x"}'),
            infer(),
        ):
            with pytest.raises(Unsupported):
                await adapter.call(request, within())


# ── failures ──────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("text", "kind", "code"),
    [
        ("!overloaded", CapacityError, "overloaded"),
        ("!rate", CapacityError, "overloaded"),
        ("!long", ContextTooLong, "context_length_exceeded"),
        ("!large", TooLarge, "request_too_large"),
        ("!api", ServerFailed, "upstream_error"),
        ("!timeout", UpstreamTimeout, "upstream_timeout"),
        ("!credit", AccountRefused, "upstream_quota_exhausted"),
        ("!billing", AccountRefused, "upstream_quota_exhausted"),
        ("!permission", BackendError, "upstream_credential"),
    ],
)
@pytest.mark.parametrize("decode", [wire.decode_message, openai.decode_chat])
async def test_refusals_have_their_kind(text: str, kind: type[InferenceError], code: str, decode: Any) -> None:
    async with adapting() as (adapter, _):
        with pytest.raises(kind) as failed:
            await adapter.call(decode(message(text)), within())
    assert type(failed.value) is kind
    assert failed.value.code == code
    assert failed.value.retry_after == (7 if text == "!rate" else None)


async def test_a_wrong_key_and_a_wrong_model_are_the_gateway_s_own_fault() -> None:
    for options, code in (({"key": "no"}, "upstream_credential"), ({"model": "no"}, "upstream_model_not_found")):
        with pytest.raises(BackendError) as failed:
            await native(message(), **options)
        assert failed.value.code == code


async def test_the_servers_message_about_a_wrong_field_is_forwarded() -> None:
    with pytest.raises(CallerError, match=r"nonsense: Extra inputs are not permitted"):
        await native(message(nonsense=1))


@pytest.mark.parametrize("decode", [wire.decode_message, openai.decode_chat])
async def test_a_broken_stream_raises(decode: Any) -> None:
    async with adapting() as (adapter, _):
        with pytest.raises(CapacityError):
            await whole(adapter, decode(message("well !broken here", stream=True)))


START = b'event: message_start\ndata: {"type":"message_start","message":{"id":"m","usage":{"input_tokens":3}}}'
TEXT = b'event: content_block_delta\ndata: {"type":"content_block_delta","index":0,"delta":{"text":"a"}}'
EVENT = b'event: error\ndata: {"type":"error","error":{"type":"%b","message":"say %b"}}'


@pytest.mark.parametrize(
    ("type_", "kind"),
    [
        (b"overloaded_error", CapacityError),
        (b"rate_limit_error", CapacityError),
        (b"timeout_error", UpstreamTimeout),
        (b"authentication_error", BackendError),
        (b"not_found_error", BackendError),
        (b"invalid_request_error", CallerError),
        (b"request_too_large", TooLarge),
        (b"api_error", BackendError),
        (b"new_error", BackendError),
    ],
)
@pytest.mark.parametrize("begun", [False, True])
async def test_errors_of_a_stream_have_their_kind(type_: bytes, kind: type[InferenceError], begun: bool) -> None:
    """Before the first event they are raised by the call, which may be tried elsewhere."""
    go_on = asyncio.Event()

    async def play(peer: Peer) -> None:
        await peer.request()
        peer.send(HEAD + (piece(START, TEXT) if begun else b""))
        if begun:
            await go_on.wait()
        peer.send(piece(EVENT % (type_, type_)))

    async with scripted(play) as upstream:
        adapter = AnthropicAdapter(Client(upstream.url))
        request = wire.decode_message(message(stream=True))
        if begun:
            answer = await adapter.call(request, within())
            assert await answer.__anext__() == START + b"\n\n" + TEXT + b"\n\n"
            go_on.set()
            with pytest.raises(kind):
                await answer.__anext__()
            assert isinstance(answer.error, kind)
        else:
            with pytest.raises(kind):
                await adapter.call(request, within())
        await adapter.aclose()


@pytest.mark.parametrize(
    "answer",
    [
        http(b"<html>", "text/html"),
        http(b"{", "application/json"),
        http(b"[]", "application/json"),
        http(b'{"type":"error","error":{"type":"api_error","message":"x"}}'),
        http(b'{"type":"message"}'),
        http(b'{"type":"message","content":[{"type":"text","text":NaN}]}'),
        HEAD + piece(START),
        HEAD + piece(b"data: nonsense"),
        HEAD + piece(b'data: {"type":5}'),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("decode", [wire.decode_message, openai.decode_chat])
async def test_an_unreadable_answer_is_the_servers_failure(answer: bytes, stream: bool, decode: Any) -> None:
    async with scripted(answers(answer)) as upstream:
        adapter = AnthropicAdapter(Client(upstream.url))
        with pytest.raises((BackendError, TransportError)):
            await whole(adapter, decode(message(stream=stream)))
        await adapter.aclose()


async def test_its_probe_lists_the_models() -> None:
    async with adapting() as (adapter, _):
        await adapter.probe(30)
    async with adapting(key="no") as (adapter, _):
        with pytest.raises(BackendError, match="401"):
            await adapter.probe(30)
