"""Anthropic's client, unchanged, before a gateway process over our own engine."""

from collections.abc import AsyncIterator
from typing import Any, NamedTuple

import anthropic as sdk
import pytest
import pytest_asyncio
from anthropic.types import Usage

from tests.support.processes import GatewayProcess, gateway

pytestmark = [pytest.mark.timeout(1800), pytest.mark.asyncio(loop_scope="module")]

CAPITAL: Any = [{"role": "user", "content": "What is the capital of France? Answer in one word."}]


class Running(NamedTuple):
    gateway: GatewayProcess
    key: str

    @property
    def client(self) -> sdk.AsyncAnthropic:
        return sdk.AsyncAnthropic(base_url=self.gateway.url, api_key=self.key, max_retries=0, timeout=120)


def prompt(usage: Usage) -> int:
    """All tokens of the prompt: the usage counts those from the prefix cache separately."""
    return usage.input_tokens + (usage.cache_read_input_tokens or 0)


RUNTIME = {"kind": "llm", "model": "bundled:smollm2-135m-instruct", "dtype": "float32", "max_model_len": 1024}
CONFIGURATION: dict[str, Any] = {
    "auth": {"demo_key": True},
    "pools": [{"name": "smollm2", "runtime": RUNTIME}],
    "models": [{"name": "local", "routes": [{"to": "smollm2"}]}],
    "tenants": [{"name": "demo", "models": ["*"], "limits": {"requests": "100000/min", "concurrency": 64}}],
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def running(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Running]:
    async with gateway(tmp_path_factory.mktemp("anthropic"), CONFIGURATION) as g:
        yield Running(g, await g.demo_key())


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
