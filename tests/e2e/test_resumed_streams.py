"""An engine is killed in the middle of its answers, and another one carries the same answers on."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import openai
import pytest

from tests.support.processes import gateway

pytestmark = pytest.mark.timeout(1800)

MODEL = "bundled:smollm2-135m-instruct"
PROMPTS = ["Tell me about rivers.", "How is bread made?", "Name some trees, and say what they are good for."]
TOKENS = 48


@asynccontextmanager
async def engine(socket: Path) -> AsyncIterator[asyncio.subprocess.Process]:
    """The LLM runtime in a process of its own, which answers health checks."""
    command = ["-m", "runtimes.llm", "--model", MODEL, "--served-name", "m", "--socket", str(socket)]
    process = await asyncio.create_subprocess_exec(
        sys.executable, *command, "--dtype", "float32", "--max-model-len", "512", "--threads", "1",
        stderr=asyncio.subprocess.DEVNULL,
    )  # fmt: skip
    try:
        async with asyncio.timeout(240), aiohttp.ClientSession(connector=aiohttp.UnixConnector(str(socket))) as http:
            while not await healthy(http):
                assert process.returncode is None
                await asyncio.sleep(0.2)
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def healthy(http: aiohttp.ClientSession) -> bool:
    try:
        async with http.get("http://engine/health") as response:
            return response.status == 200
    except aiohttp.ClientError:
        return False


def configuration(sockets: list[Path]) -> dict[str, Any]:
    """The same engines as two pools, carried on from their tokens and from their text."""
    engines = {
        "endpoints": [f"unix:{socket}" for socket in sockets],
        "balance": {"by": "round_robin"},
        "model": "m",
        "probe": {"interval": "200ms", "timeout": "10s"},
    }
    return {
        "auth": {"demo_key": True},
        "pools": [{"name": mode, "resume": mode, **engines} for mode in ("tokens", "text")],
        "models": [{"name": mode, "routes": [{"to": mode}]} for mode in ("tokens", "text")],
        "tenants": [{"name": "demo", "models": ["*"]}],
    }


class Story:
    """One greedy stream with its usage, and when it has some text."""

    def __init__(self, sdk: openai.AsyncOpenAI, model: str, prompt: str) -> None:
        self.prompt = prompt
        self.text = ""
        self.begun = asyncio.Event()
        self.ids: set[str] = set()
        self.reasons: list[str] = []
        self.usage: Any = None
        self.task = asyncio.create_task(self._read(sdk, model))

    async def _read(self, sdk: openai.AsyncOpenAI, model: str) -> "Story":
        chunks = await sdk.chat.completions.create(
            model=model,
            messages=[{"role": "user", "content": self.prompt}],
            temperature=0,
            max_tokens=TOKENS,
            stream=True,
            stream_options={"include_usage": True},
        )
        async for chunk in chunks:
            self.ids.add(chunk.id)
            self.usage = chunk.usage or self.usage
            for choice in chunk.choices:
                self.text += choice.delta.content or ""
                self.reasons += [choice.finish_reason] if choice.finish_reason else []
            if len(self.text) > 20:
                self.begun.set()
        return self


async def test_streams_survive_the_engine_that_is_killed_under_them(tmp_path: Path) -> None:
    sockets = [tmp_path / "a.sock", tmp_path / "b.sock"]
    async with engine(sockets[0]) as doomed, engine(sockets[1]), gateway(tmp_path, configuration(sockets)) as g:
        key = await g.demo_key()
        await g.until("all(e['health'] == 'healthy' for e in s['endpoints'])")
        async with openai.AsyncOpenAI(base_url=f"{g.url}/v1", api_key=key, max_retries=0, timeout=200) as sdk:
            unbroken = {prompt: await Story(sdk, "tokens", prompt).task for prompt in PROMPTS}
            exact, by_text = ([Story(sdk, mode, prompt) for prompt in PROMPTS] for mode in ("tokens", "text"))
            await asyncio.gather(*(story.begun.wait() for story in (*exact, *by_text)))
            assert all(endpoint["in_flight"] for endpoint in (await g.state())["endpoints"])
            os.kill(doomed.pid, signal.SIGKILL)
            for story in (*exact, *by_text):
                await story.task
                first = unbroken[story.prompt]
                assert (story.text, story.reasons, len(story.ids)) == (first.text, first.reasons, 1)
            costs = [(story.usage, unbroken[story.prompt].usage) for story in exact]
            assert all(cost and first and cost.total_tokens == first.total_tokens for cost, first in costs)
        await g.until_idle()
        async with aiohttp.ClientSession() as http, http.get(f"{g.admin}/metrics") as response:
            metrics = await response.text()
            assert all(f'headrace_resumes_total{{pool="{mode}"}}' in metrics for mode in ("tokens", "text"))
    assert '"resumed":1' in (tmp_path / "access.log").read_text()
