"""The main job: one command serves a real LLM, and every app that speaks OpenAI talks to it."""

import asyncio
import os
import shlex
import signal
from collections.abc import AsyncIterator
from typing import Any

import openai
import pytest
import pytest_asyncio

from tests.support.processes import GatewayProcess, gateway

pytestmark = [pytest.mark.timeout(1800), pytest.mark.asyncio(loop_scope="module")]

LLM = {"kind": "llm", "model": "bundled:smollm2-135m-instruct", "max_model_len": 1024}
STEPS = [
    {"name": "t", "in": {"text": "request.text"}, "tokenize": {"model": "smollm2"}},
    {"name": "d", "in": {"ids": "t.ids"}, "detokenize": {"model": "smollm2"}},
]
MODEL: dict[str, Any] = {
    "auth": {"demo_key": True},
    "pools": [{"name": "smollm2", "runtime": LLM}],
    "models": [{"name": "smollm2", "routes": [{"to": "smollm2"}]}, {"name": "echo", "pipeline": {"steps": STEPS}}],
    "tenants": [{"name": "demo", "models": ["*"], "limits": {"concurrency": 64}}],
}


CAPITAL: Any = [{"role": "user", "content": "What is the capital of France? Answer in one word."}]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def running(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[tuple[GatewayProcess, str]]:
    async with gateway(tmp_path_factory.mktemp("main"), MODEL, forked=False) as g:
        key = await g.demo_key()
        yield g, key


def client(running: tuple[GatewayProcess, str]) -> openai.AsyncOpenAI:
    g, key = running
    return openai.AsyncOpenAI(base_url=f"{g.url}/v1", api_key=key, max_retries=0, timeout=300)


async def stream_text(sdk: openai.AsyncOpenAI, prompt: str, max_tokens: int) -> str:
    chunks = await sdk.chat.completions.create(
        model="smollm2", messages=[{"role": "user", "content": prompt}], max_tokens=max_tokens, stream=True
    )
    return "".join([c.choices[0].delta.content or "" async for c in chunks if c.choices])


async def test_the_official_client_gets_sensible_english(running: tuple[GatewayProcess, str]) -> None:
    async with client(running) as sdk:
        answer = await sdk.chat.completions.create(model="smollm2", messages=CAPITAL, temperature=0, max_tokens=20)
        assert "Paris" in (answer.choices[0].message.content or "")
        assert answer.usage is not None
        assert answer.usage.prompt_tokens > 10
        usage: Any = {"include_usage": True}
        chunks = await sdk.chat.completions.create(
            model="smollm2", messages=CAPITAL, temperature=0, max_tokens=20, stream=True, stream_options=usage
        )
        received = [c async for c in chunks]
        streamed = "".join(c.choices[0].delta.content or "" for c in received if c.choices)
        assert streamed == answer.choices[0].message.content
        assert received[-1].usage is not None
        assert received[-1].usage.total_tokens == answer.usage.total_tokens
        assert [m.id async for m in sdk.models.list()] == ["smollm2", "echo"]
    await running[0].until_idle()


async def test_a_pipeline_encodes_with_the_tokenizer_of_the_model(running: tuple[GatewayProcess, str]) -> None:
    async with client(running) as sdk:
        answer = await sdk.chat.completions.create(model="echo", messages=CAPITAL)
        assert answer.choices[0].message.content == CAPITAL[0]["content"]
    await running[0].until_idle()


async def test_the_curl_line_works_as_printed(running: tuple[GatewayProcess, str]) -> None:
    g, _ = running
    lines = (await g.printed(r"(?s)Try:\n(  curl .*?\}')\n"))[1]
    arguments = shlex.split(lines.replace("\\\n", " "))
    process = await asyncio.create_subprocess_exec(
        arguments[0], "--silent", "--fail", *arguments[1:], stdout=asyncio.subprocess.PIPE
    )
    out, _ = await process.communicate()
    assert process.returncode == 0
    assert b"river" in out.lower()


async def test_killing_the_engine_under_streams_ends_each_with_an_error(running: tuple[GatewayProcess, str]) -> None:
    g, _ = running
    before = (await g.until("s['endpoints'][0]['health'] == 'healthy'"))["endpoints"][0]
    async with client(running) as sdk:
        begun = asyncio.Event()
        counted = 0

        async def one(i: int) -> BaseException | None:
            nonlocal counted
            try:
                messages: Any = [{"role": "user", "content": f"Tell a long story about the number {i}."}]
                chunks = await sdk.chat.completions.create(
                    model="smollm2", messages=messages, max_tokens=800, stream=True, extra_body={"ignore_eos": True}
                )
                first = True
                async for chunk in chunks:
                    assert not (chunk.choices and chunk.choices[0].finish_reason)
                    if first:
                        first, counted = False, counted + 1
                        if counted == 32:
                            begun.set()
            except openai.APIError as error:
                return error
            return None

        streams = [asyncio.create_task(one(i)) for i in range(32)]
        async with asyncio.timeout(300):
            await begun.wait()
        os.kill(before["pid"], signal.SIGKILL)
        async with asyncio.timeout(300):
            ends = await asyncio.gather(*streams)
    assert all(isinstance(end, openai.APIError) for end in ends), ends
    await g.until_idle()
    again = before["restarts"] + 1
    restarted = f"s['endpoints'][0]['restarts'] == {again} and s['endpoints'][0]['health'] == 'healthy'"
    after = await g.until(restarted)
    assert after["endpoints"][0]["pid"] != before["pid"]
    async with client(running) as sdk:
        assert await stream_text(sdk, "Say hello.", 8)
    await g.until_idle()
