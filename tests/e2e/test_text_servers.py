"""OpenAI's client, unchanged, before servers that know only prompts: Text Generation Inference, a real Triton,
and one of OpenAI's protocol that has completions only."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, NamedTuple

import openai
import pytest
from aiohttp import web

from tests.servers.shared import shared, triton_of_texts
from tests.servers.stand_ins.serving import serving
from tests.servers.stand_ins.tgi import tgi
from tests.servers.triton import Triton
from tests.support.processes import GatewayProcess, gateway

pytestmark = [pytest.mark.servers, pytest.mark.timeout(1800)]

MESSAGES: Any = [{"role": "user", "content": "one two three"}]


@pytest.fixture(scope="module")
def real_triton() -> Triton:
    return shared(triton_of_texts)


class Running(NamedTuple):
    gateway: GatewayProcess
    received: list[dict[str, Any]]
    """The requests that the server of completions received."""

    async def client(self) -> Any:
        """OpenAI's client, untyped: the tests pass arguments that its overloads do not accept."""
        return openai.AsyncOpenAI(base_url=f"{self.gateway.url}/v1", api_key=await self.gateway.key(), max_retries=0)


def pool(name: str, protocol: dict[str, Any], url: str) -> dict[str, Any]:
    return {"name": name, "protocol": protocol, "endpoints": [url]}


def configuration(tgi: str, server: Triton, completions: str) -> dict[str, Any]:
    prompts = {"chat_template": "chatml"}
    return {
        "pools": [
            pool("tgi", {"name": "tgi", **prompts}, tgi),
            pool("triton", {"name": "triton-generate", **prompts}, f"http://{server.http}"),
            pool("base", {"name": "openai", "only": "completions", **prompts}, completions),
        ],
        "models": [
            *({"name": name, "routes": [{"to": name}]} for name in ("tgi", "base")),
            *({"name": name, "routes": [{"to": "triton"}]} for name in ("llm_api", "bls", "vllm")),
        ],
        "tenants": [{"name": "acme", "models": ["*"], "limits": {"tokens": "100000/d"}}],
    }


@pytest.fixture
async def running(tmp_path: Path, real_triton: Triton) -> AsyncIterator[Running]:
    received: list[dict[str, Any]] = []

    async def complete(http: web.Request) -> web.Response:
        received.append(await http.json())
        choice = {"index": 0, "text": "made of a prompt", "logprobs": None, "finish_reason": "stop"}
        usage = {"prompt_tokens": 7, "completion_tokens": 4, "total_tokens": 11}
        head = {"id": "1", "object": "text_completion", "created": 1, "model": "base"}
        return web.json_response({**head, "choices": [choice], "usage": usage})

    app = web.Application()
    app.router.add_post("/v1/completions", complete)
    app.router.add_get("/health", _healthy)
    async with (
        tgi() as server,
        serving(app) as completions,
        gateway(tmp_path, configuration(server.url, real_triton, completions)) as made,
    ):
        yield Running(made, received)
        await made.until_idle()


async def _healthy(_: web.Request) -> web.Response:
    return web.Response()


@pytest.mark.parametrize("model", ["tgi", "llm_api", "bls", "vllm"])
async def test_chats_and_completions(running: Running, model: str) -> None:
    async with await running.client() as client:
        whole = await client.chat.completions.create(model=model, messages=MESSAGES)
        assert (whole.choices[0].message.content, whole.choices[0].finish_reason) == ("one two three", "stop")
        assert whole.usage is not None
        assert whole.usage.prompt_tokens > 0
        text = await client.completions.create(model=model, prompt="one two three", max_tokens=9, stop="three")
        assert text.choices[0].text.rstrip() == "one two"
        content, ends = "", []
        usage = {"include_usage": True}
        async for chunk in await client.chat.completions.create(
            model=model, messages=MESSAGES, stream=True, stream_options=usage, max_tokens=2
        ):
            for choice in chunk.choices:
                content += choice.delta.content or ""
                ends.append(choice.finish_reason)
        assert (content, ends[-1]) == ("one two", "length")
        assert chunk.usage is not None
        assert chunk.usage.completion_tokens == 2


async def test_a_chat_for_a_server_of_completions(running: Running) -> None:
    async with await running.client() as client:
        whole = await client.chat.completions.create(model="base", messages=MESSAGES)
        assert whole.choices[0].message.content == "made of a prompt"
        assert running.received[0]["prompt"].startswith("<|im_start|>user\none two three")
