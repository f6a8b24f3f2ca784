"""A model of several processes behind the gateway: it answers, survives the death of one, and ends with the gateway."""

import asyncio
import os
import signal
from pathlib import Path
from typing import Any

import aiohttp
import psutil
import pytest

from tests.support.conditions import until
from tests.support.processes import gateway

pytestmark = pytest.mark.timeout(1800)
CONFIGURATION: dict[str, Any] = {
    "pools": [
        {
            "name": "llm",
            "runtime": {
                "kind": "llm", "model": "bundled:smollm2-135m-instruct", "tensor_parallel": 3, "threads": 1,
                "dtype": "float32", "max_model_len": 1024, "kv_cache": "128MiB",
            },
        }
    ],
    "models": [{"name": "smollm2", "routes": [{"to": "llm"}]}],
    "tenants": [{"name": "acme", "models": ["*"]}],
}  # fmt: skip
QUESTION = {"model": "smollm2", "messages": [{"role": "user", "content": "What is the capital of France?"}]}


def ranks(pid: int) -> list[psutil.Process]:
    """The further processes of the runtime."""
    processes = psutil.Process(pid).children(recursive=True)
    return [one for one in processes if "runtimes.llm.engine.ranks.process" in one.cmdline()]


async def test_a_model_of_three_processes_is_served_and_started_again(tmp_path: Path) -> None:
    async with gateway(tmp_path, CONFIGURATION) as running, aiohttp.ClientSession() as session:
        await running.printed("Ready.")
        key = {"Authorization": f"Bearer {await running.key()}"}

        async def post(path: str, **fields: Any) -> tuple[int, Any]:
            body = QUESTION | {"temperature": 0, "max_tokens": 20} | fields
            async with session.post(f"{running.url}{path}", json=body, headers=key) as response:
                return response.status, await response.json()

        status, answer = await post("/v1/chat/completions")
        assert (status, answer["choices"][0]["message"]["content"]) == (200, "The capital of France is Paris.")
        first = ranks(running.process.pid)
        assert len(first) == 2

        long = {"max_tokens": 900, "ignore_eos": True}
        pending = [asyncio.ensure_future(post(path, **long)) for path in ("/v1/chat/completions", "/v1/messages")]
        await until(lambda: first[0].cpu_percent() > 0)
        os.kill(first[0].pid, signal.SIGKILL)
        openai, anthropic = await asyncio.gather(*pending)
        assert openai[0] >= 500
        assert openai[1]["error"]["message"]
        assert anthropic[0] >= 500
        assert anthropic[1]["type"] == "error"
        assert anthropic[1]["error"]["type"] in ("api_error", "overloaded_error")  # from the engine, or its absence

        await until(lambda: not any(one.is_running() for one in first))
        while (again := await post("/v1/chat/completions"))[0] != 200:  # until the runtime is there again
            await asyncio.sleep(0.1)
        assert again[1]["choices"][0]["message"]["content"] == "The capital of France is Paris."
        last = ranks(running.process.pid)
        assert len(last) == 2
    assert not any(one.is_running() for one in last)
