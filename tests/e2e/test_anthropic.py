"""Anthropic's client, unchanged, before a gateway process: over our own engine, and over a server of its own wire."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anthropic as sdk
import openai
import pytest
import pytest_asyncio
from anthropic.types import Usage

from tests.servers.stand_ins.anthropic import KEY, MODEL, Anthropic, anthropic
from tests.support.processes import GatewayProcess, gateway

pytestmark = [pytest.mark.timeout(1800), pytest.mark.asyncio(loop_scope="module")]

CAPITAL: Any = [{"role": "user", "content": "What is the capital of France? Answer in one word."}]
NO_ARGUMENTS = {"type": "object", "properties": {}, "additionalProperties": False}
"""With free arguments a sampled call may be longer than `max_tokens`."""
TOOLS: Any = [{"name": name, "input_schema": NO_ARGUMENTS} for name in ("look", "listen")]


@dataclass
class Running:
    gateway: GatewayProcess
    key: str
    server: Anthropic

    @property
    def client(self) -> sdk.AsyncAnthropic:
        return sdk.AsyncAnthropic(base_url=self.gateway.url, api_key=self.key, max_retries=0, timeout=120)


def prompt(usage: Usage) -> int:
    """All tokens of the prompt: the usage counts those from the prefix cache separately."""
    return usage.input_tokens + (usage.cache_read_input_tokens or 0)


def configuration(server: Anthropic, key: Path) -> dict[str, Any]:
    runtime = {"kind": "llm", "model": "bundled:smollm2-135m-instruct", "dtype": "float32", "max_model_len": 1024}
    return {
        "auth": {"demo_key": True},
        "pools": [
            {"name": "smollm2", "runtime": runtime},
            {
                "name": "claude",
                "protocol": "anthropic",
                "endpoints": [server.url],
                "model": MODEL,
                "key": f"file:{key}",
            },
        ],
        "models": [
            {"name": "local", "routes": [{"to": "smollm2"}]},
            {"name": "claude", "routes": [{"to": "claude", "retry": {"attempts": 1}}]},
            {"name": "either", "routes": [{"to": "claude", "retry": {"attempts": 1}, "fallback": ["smollm2"]}]},
        ],
        "tenants": [{"name": "demo", "models": ["*"], "limits": {"requests": "100000/min", "concurrency": 64}}],
    }


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def running(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Running]:
    folder = tmp_path_factory.mktemp("anthropic")
    secret = folder / "anthropic.key"
    secret.write_text(KEY)
    secret.chmod(0o600)
    async with anthropic() as server, gateway(folder, configuration(server, secret)) as g:
        key = await g.demo_key()
        yield Running(g, key, server)


async def test_our_own_engine_answers_messages(running: Running) -> None:
    async with running.client as client:
        request: Any = {"model": "local", "messages": CAPITAL, "max_tokens": 20, "temperature": 0}
        request["system"] = [{"type": "text", "text": "You are brief.", "cache_control": {"type": "ephemeral"}}]
        request |= {"extra_body": {"temperature": request.pop("temperature")}}
        message = await client.messages.create(**request)
        (block,) = message.content
        assert block.type == "text"
        assert "Paris" in block.text
        async with client.messages.stream(**request) as stream:
            text = "".join([part async for part in stream.text_stream])
            final = await stream.get_final_message()
        assert text == block.text
        assert final.usage.output_tokens == message.usage.output_tokens
        assert prompt(final.usage) == prompt(message.usage) > 10
        counted = await client.messages.with_raw_response.count_tokens(
            model="local", messages=CAPITAL, system=request["system"]
        )
        assert (await counted.parse()).input_tokens == prompt(message.usage)
        assert "x-headrace-estimate" not in counted.headers
        begun: Any = [*CAPITAL, {"role": "assistant", "content": "The capital of France is"}]
        message = await client.messages.create(model="local", messages=begun, max_tokens=5)
        assert message.content[0].type == "text"
        assert not message.content[0].text.startswith("The capital")
    await running.gateway.until_idle()


async def test_our_own_engine_calls_tools(running: Running) -> None:
    async with running.client as client:
        request: Any = {"model": "local", "messages": CAPITAL, "max_tokens": 60, "tools": TOOLS}
        request["tool_choice"] = {"type": "any", "disable_parallel_tool_use": True}
        message = await client.messages.create(**request)
        (block,) = message.content
        assert (block.type, message.stop_reason) == ("tool_use", "tool_use")
        assert block.name in ("look", "listen")
        results: Any = [{"type": "tool_result", "tool_use_id": block.id, "content": "A river."}]
        request["messages"] = [
            *CAPITAL,
            {"role": "assistant", "content": message.content},
            {"role": "user", "content": results},
        ]
        async with client.messages.stream(**request) as stream:
            final = await stream.get_final_message()
        assert [part.type for part in final.content] == ["tool_use"]
        counted = await client.messages.with_raw_response.count_tokens(model="local", messages=CAPITAL, tools=TOOLS)
        assert "x-headrace-estimate" not in counted.headers
        assert (await counted.parse()).input_tokens == prompt(message.usage)
    await running.gateway.until_idle()


async def test_a_server_of_messages_answers_both_kinds_of_clients(running: Running) -> None:
    call: Any = [{"role": "user", "content": "call them"}]
    async with running.client as client:
        async with client.messages.stream(model="claude", messages=call, max_tokens=50, tools=TOOLS) as stream:
            calling = await stream.get_final_message()
        calls = [block for block in calling.content if block.type == "tool_use"]
        assert [block.name for block in calls] == ["look", "listen"]
        results: Any = [{"type": "tool_result", "tool_use_id": block.id, "content": "found"} for block in calls]
        turns: Any = [*call, {"role": "assistant", "content": calling.content}, {"role": "user", "content": results}]
        message = await client.messages.create(model="claude", messages=turns, max_tokens=50, tools=TOOLS)
        assert message.content[0].type == "text"
        assert message.content[0].text == "what the tool found"
    url = f"{running.gateway.url}/v1"
    async with openai.AsyncOpenAI(base_url=url, api_key=running.key, max_retries=0, timeout=300) as client:
        chunks = await client.chat.completions.create(
            model="claude", messages=[{"role": "user", "content": "a b c"}], stream=True
        )
        assert "".join([c.choices[0].delta.content or "" async for c in chunks if c.choices]) == "a b c"
    await running.gateway.until_idle()


async def test_another_pool_answers_while_anthropic_is_overloaded(running: Running) -> None:
    """The second pool speaks another protocol; the client notices nothing."""
    request: Any = {"messages": [{"role": "user", "content": "!overloaded"}], "max_tokens": 5}
    async with running.client as client:
        with pytest.raises(sdk.OverloadedError):
            await client.messages.create(model="claude", **request)
        message = await client.messages.create(model="either", **request)
        assert message.stop_reason in ("end_turn", "max_tokens")
        async with client.messages.stream(model="either", **request) as stream:
            assert (await stream.get_final_message()).usage.output_tokens > 0
    await running.gateway.until_idle()
