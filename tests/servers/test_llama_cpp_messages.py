"""Anthropic's client and OpenAI's, through the gateway, before a real server of Messages: llama.cpp's."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anthropic
import openai
import pytest

from adapters.base import Adapter
from adapters.http1.server import Limits, Server
from adapters.registry import Address, make
from gateway.fronts.errors import openai_refusal
from gateway.process.client_fronts import client_fronts
from tests.servers.llama_cpp import NAME, llama_cpp
from tests.servers.shared import shared
from tests.servers.started import Started
from tests.support.gateways import Rig, config

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(1800, func_only=True)]

MESSAGE: Any = {"model": "chat", "max_tokens": 12, "messages": [{"role": "user", "content": "Count to five."}]}


@pytest.fixture(scope="module")
def real() -> Started:
    return shared(llama_cpp)


@asynccontextmanager
async def door(url: str, protocol: str) -> AsyncIterator[tuple[str, str]]:
    """A gateway before it, and a key."""
    configuration = config(
        pools=[{"name": "main", "protocol": protocol, "endpoints": [url], "model": NAME, "probe": {"path": "/health"}}]
    )
    adapter: Adapter = make(configuration.pools[0], Address(url))
    rig = Rig(configuration, {"main": [adapter]})  # type: ignore[list-item]
    server = Server(client_fronts(rig.core), Limits(), openai_refusal)
    host, port = await server.listen_tcp("127.0.0.1", 0)
    try:
        yield f"http://{host}:{port}", rig.key.plaintext
    finally:
        await server.aclose()
        await adapter.aclose()


@pytest.mark.parametrize("protocol", ["anthropic", "openai"])
async def test_anthropic_s_client(real: Started, protocol: str) -> None:
    """Before the same server by either of its wires."""
    async with (
        door(real.url(), protocol) as (url, key),
        anthropic.AsyncAnthropic(base_url=url, api_key=key, max_retries=0, timeout=60) as client,
    ):
        message = await client.messages.create(**MESSAGE)
        assert message.content[0].type == "text"
        assert message.stop_reason in ("max_tokens", "end_turn")
        async with client.messages.stream(**MESSAGE) as stream:
            streamed = await stream.get_final_message()
        assert streamed.content[0].type == "text"
        assert min(streamed.usage.output_tokens, message.usage.output_tokens) > 1
        counted = await client.messages.count_tokens(model="chat", messages=MESSAGE["messages"])
        read = message.usage.cache_read_input_tokens or 0
        if protocol == "anthropic":
            assert counted.input_tokens == message.usage.input_tokens + read
        with pytest.raises(anthropic.BadRequestError, match="prompt is too long"):
            await client.messages.create(**{**MESSAGE, "messages": [{"role": "user", "content": "river " * 9000}]})


async def test_openai_s_client(real: Started) -> None:
    async with (
        door(real.url(), "anthropic") as (url, key),
        openai.AsyncOpenAI(base_url=f"{url}/v1", api_key=key, max_retries=0, timeout=300) as client,
    ):
        answer = await client.chat.completions.create(**MESSAGE)
        assert answer.choices[0].message.content
        assert answer.usage is not None
        assert answer.usage.total_tokens > 12
        chunks = await client.chat.completions.create(**MESSAGE, stream=True, stream_options={"include_usage": True})
        seen = [chunk async for chunk in chunks]
        assert "".join(c.choices[0].delta.content or "" for c in seen if c.choices)
        assert seen[-1].usage is not None
