"""Bedrock's adapter before the stand-in, for tests of chats, messages and streams."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from adapters.base import Adapter, Answer
from adapters.call import Call
from adapters.registry import Address, make
from adapters.types import ANTHROPIC, OPENAI
from adapters.wire import sse
from adapters.wire.anthropic import requests as wire
from adapters.wire.openai import chat as openai
from tests.support.gateways import config
from tests.support.openai_answers import within
from tests.support.providers.bedrock import (
    CLAUDE,
    KEY,
    Bedrock,
    bedrock,
)

Object = dict[str, Any]
WEATHER = {
    "type": "function",
    "function": {"name": "weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}},
}
TIME = {"type": "function", "function": {"name": "time", "description": "", "parameters": {"type": "object"}}}
PIXEL = "iVBORw0KGgo="
GUARDED: Object = {"guardrail": {"id": "abc123", "version": "2"}}


def message(text: Any = "hi there", **fields: Any) -> bytes:
    messages = text if isinstance(text, list) and text and "role" in text[0] else [{"role": "user", "content": text}]
    return json.dumps({"model": "ours", "max_tokens": 50, "messages": messages, **fields}).encode()


def chat(text: Any = "hi there", **fields: Any) -> bytes:
    messages = text if isinstance(text, list) and text and "role" in text[0] else [{"role": "user", "content": text}]
    return json.dumps({"model": "ours", "messages": messages, **fields}).encode()


@asynccontextmanager
async def adapting(
    model: str | None = CLAUDE, key: str = KEY, server: Bedrock | None = None, **options: Any
) -> AsyncIterator[tuple[Adapter, Bedrock]]:
    """An adapter for a stand-in, built from a pool's section."""
    async with bedrock() as server:
        fields = {"key": key, "model": model, "protocol": {"name": "bedrock", **options}}
        (pool,) = config(pools=[{"name": "main", "endpoints": [server.url], **fields}]).pools
        adapter = make(pool, Address(server.url))
        try:
            yield adapter, server
        finally:
            await adapter.aclose()


async def chatted(body: bytes, call: Call | None = None, **options: Any) -> tuple[Object, Object]:
    """The completion, and the request that the stand-in received."""
    async with adapting(**options) as (adapter, server):
        answer = await adapter.call(openai.decode_chat(body), call or within())
        assert answer.form == OPENAI
        assert answer.body is not None
        completion = json.loads(answer.body)
        assert answer.usage.total_tokens == completion["usage"]["total_tokens"]
        return completion, server.bodies[-1][1]


async def messaged(body: bytes, call: Call | None = None, betas: str | None = None, **options: Any) -> Any:
    """The message, the request that the stand-in received, and the answer."""
    async with adapting(**options) as (adapter, server):
        answer = await adapter.call(wire.decode_message(body, betas), call or within())
        assert answer.form == ANTHROPIC
        return json.loads(answer.body or b""), server.bodies[-1][1], answer


async def written(adapter: Adapter, request: Any) -> tuple[bytes, Answer]:
    answer = await adapter.call(request, within())
    return b"".join([part async for part in answer]), answer


async def chunks(body: bytes, **options: Any) -> tuple[list[Object], Answer]:
    async with adapting(**options) as (adapter, _):
        stream, answer = await written(adapter, openai.decode_chat(body))
    data = [sse.data_of(event) for event in stream.strip().split(b"\n\n")]
    assert data.pop() == b"[DONE]"
    return [json.loads(each) for each in data if each], answer


async def events(body: bytes, **options: Any) -> tuple[list[Object], Answer]:
    async with adapting(**options) as (adapter, _):
        stream, answer = await written(adapter, wire.decode_message(body))
    return [json.loads(sse.data_of(event)) for event in stream.strip().split(b"\n\n")], answer
