"""OpenAI's client, unchanged, before servers that know only prompts: two of Text Generation Inference, a real Triton,
and one of OpenAI's protocol that has completions only."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, NamedTuple

import openai
import pytest
import yaml
from aiohttp import web

from tests.servers.shared import shared, triton_of_texts
from tests.servers.stand_ins.serving import serving
from tests.servers.stand_ins.tgi import Tgi, tgi
from tests.servers.triton import Triton
from tests.support.processes import GatewayProcess, command, gateway

pytestmark = pytest.mark.timeout(1800)

MESSAGES: Any = [{"role": "user", "content": "one two three"}]


@pytest.fixture(scope="module")
def real_triton() -> Triton:
    return shared(triton_of_texts)


class Running(NamedTuple):
    gateway: GatewayProcess
    servers: list[Tgi]
    received: list[dict[str, Any]]
    """The requests that the server of completions received."""

    async def client(self) -> Any:
        """OpenAI's client, untyped: the tests pass arguments that its overloads do not accept."""
        return openai.AsyncOpenAI(base_url=f"{self.gateway.url}/v1", api_key=await self.gateway.key(), max_retries=0)


def pool(name: str, protocol: dict[str, Any], url: str) -> dict[str, Any]:
    return {"name": name, "protocol": protocol, "endpoints": [url]}


def configuration(servers: list[Tgi], server: Triton, completions: str, template: Path) -> dict[str, Any]:
    prompts = {"chat_template": "chatml"}
    balance = {"by": "round_robin"}
    return {
        "pools": [
            {
                "name": "tgi",
                "protocol": {"name": "tgi", **prompts},
                "endpoints": [one.url for one in servers],
                "balance": balance,
                "resume": "text",
            },
            pool("strict", {"name": "tgi", "chat_template": f"file:{template}"}, servers[0].url),
            pool("triton", {"name": "triton-generate", **prompts}, f"http://{server.http}"),
            pool("base", {"name": "openai", "only": "completions", **prompts}, completions),
        ],
        "models": [
            {"name": "tgi", "routes": [{"to": "tgi", "retry": {"attempts": 3, "budget": "100%"}}]},
            {"name": "strict", "routes": [{"to": "strict"}]},
            {"name": "base", "routes": [{"to": "base"}]},
            *({"name": name, "routes": [{"to": "triton"}]} for name in ("llm_api", "bls", "vllm")),
        ],
        "tenants": [{"name": "acme", "models": ["*"], "limits": {"tokens": "100000/d"}}],
    }  # fmt: skip


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
    template = tmp_path / "alternating.jinja"
    template.write_text(
        "{% for m in messages %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}"
        "{{ raise_exception('roles must alternate') }}{% endif %}{{ m.content }}{% endfor %}"
    )
    async with AsyncExitStack() as stack:
        servers = [await stack.enter_async_context(tgi()) for _ in range(2)]
        completions = await stack.enter_async_context(serving(app))
        config = configuration(servers, real_triton, completions, template)
        made = await stack.enter_async_context(gateway(tmp_path, config))
        yield Running(made, servers, received)
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


async def test_refusals(running: Running) -> None:
    async with await running.client() as client:
        twice: Any = [*MESSAGES, *MESSAGES]
        with pytest.raises(openai.BadRequestError, match="roles must alternate"):
            await client.chat.completions.create(model="strict", messages=twice)
        with pytest.raises(openai.BadRequestError, match="is not supported by this model"):
            await client.chat.completions.create(model="tgi", messages=MESSAGES, logit_bias={"1": 5})
        with pytest.raises(openai.BadRequestError) as caught:
            await client.completions.create(model="tgi", prompt="word " * 3000, max_tokens=5)
        assert caught.value.code == "context_length_exceeded"
        state = await running.gateway.state()
        assert {endpoint["breaker"] for endpoint in state["endpoints"]} == {"closed"}


async def test_a_full_server_is_left_for_another(running: Running) -> None:
    """Also in a stream that reports the error after a status of 200."""
    running.servers[0].full = True
    async with await running.client() as client:
        for stream in (False, True, False, True):
            answer: Any = await client.chat.completions.create(model="tgi", messages=MESSAGES, stream=stream)
            chunks = [chunk async for chunk in answer] if stream else [answer]
            assert chunks
        assert len(running.servers[1].received) == 4


async def test_a_stream_that_breaks_is_carried_on(running: Running) -> None:
    """Another server continues: its request has the conversation's prompt and the client's part of the answer."""
    first, second = running.servers
    first.cut_after = 2
    async with await running.client() as client:
        while not first.received:
            stream = await client.chat.completions.create(model="tgi", messages=MESSAGES, stream=True)
            ends = [chunk.choices[0].finish_reason async for chunk in stream]
            assert ends[-1] == "stop"
    [request] = first.received
    carried_on = second.received[-1]
    assert carried_on["inputs"] == request["inputs"] + "one two"
    assert carried_on["parameters"] == request["parameters"]


async def test_an_invalid_template_prevents_the_start(tmp_path: Path) -> None:
    template = tmp_path / "broken.jinja"
    template.write_text("{% for %}")
    config = {
        "version": 1,
        "listen": {"http": "127.0.0.1:0", "admin": "127.0.0.1:0"},
        "state": {"database": f"sqlite:///{tmp_path}/state.db"},
        "pools": [pool("strict", {"name": "tgi", "chat_template": f"file:{template}"}, "http://127.0.0.1:9")],
        "models": [{"name": "strict", "routes": [{"to": "strict"}]}],
        "tenants": [{"name": "acme", "models": ["*"]}],
    }
    path = tmp_path / "headrace.yaml"
    path.write_text(yaml.safe_dump(config))
    status, _, errors = await command("serve", "--config", str(path))
    assert status != 0
    assert "pool strict: chat_template" in errors
    assert "is not valid Jinja" in errors
    assert "Traceback" not in errors
