"""No value of any request field ends the engine or disturbs another answer, on either executor."""

import asyncio
import json
import os
from collections.abc import Iterable
from typing import Any

import aiohttp
import pytest
import torch

from runtimes.llm.engine.executor import Executor, TorchExecutor
from runtimes.llm.engine.model_runner import ModelRunner, Pooler
from runtimes.llm.native.executor import NativeExecutor
from tests.runtimes.llm.extremes import APIS, Api, combinations, single_values
from tests.runtimes.llm.native.models import BLOCK, random_model, shape
from tests.runtimes.llm.server_fixtures import CONTEXT, MODEL, Running, serving, until_idle

COMBINATIONS = int(os.environ.get("HEADRACE_FUZZ_REQUESTS", "300"))
SEED = int(os.environ.get("HEADRACE_SEED", "1"))
AT_ONCE = 12
NUM_BLOCKS = 600
BESIDE: dict[str, Any] = {
    "model": MODEL, "prompt": "beside", "max_tokens": 120, "temperature": 0, "repetition_penalty": 1.3,
    "ignore_eos": True,
}  # fmt: skip


def executor(name: str) -> Executor:
    config = shape(vocab_size=258, eos_token_ids=frozenset({257}), context_length=CONTEXT)
    if name == "torch":
        return TorchExecutor(random_model(config, torch.float32), NUM_BLOCKS, BLOCK)
    model = random_model(config, torch.bfloat16)
    return NativeExecutor(model, NUM_BLOCKS, BLOCK, context_length=CONTEXT, threads=1)


async def _beside(session: aiohttp.ClientSession, running: Running) -> str:
    async with session.post(f"{running.url}/v1/completions", json=BESIDE | {"stream": True}) as response:
        events = (await response.read()).decode().split("\n\n")
    assert events[-2] == "data: [DONE]", events[-2]
    return "".join(json.loads(event.removeprefix("data: "))["choices"][0]["text"] for event in events[:-2])


async def _check(session: aiohttp.ClientSession, running: Running, api: Api, body: bytes) -> None:
    headers = {"content-type": "application/json"}
    async with session.post(running.url + api.path, data=body, headers=headers) as response:
        answer = await response.read()
    shown = (api.path, body[:600], response.status, answer[:400])
    assert response.status == 200 or 400 <= response.status < 500, shown
    if response.status != 200:
        assert json.loads(answer)["error"]["message"], shown
    elif response.content_type == "text/event-stream":
        assert b'"error":{' not in answer or b"invalid_grammar" in answer, shown


async def _drive(running: Running, requests: Iterable[tuple[Api, bytes]]) -> None:
    """Send them all, a few at a time, while one answer after another is made beside them."""
    left = iter(requests)
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(30)) as session:
        expected = await _beside(session, running)

        async def work() -> None:
            for api, body in left:
                await _check(session, running, api, body)

        async with asyncio.TaskGroup() as group:
            workers = [group.create_task(work()) for _ in range(AT_ONCE)]
            while not all(worker.done() for worker in workers):
                assert await _beside(session, running) == expected
    await until_idle(running.engine)
    assert running.engine.alive


@pytest.mark.processes
@pytest.mark.parametrize("name", ["torch", "native"])
async def test_no_value_of_a_field_disturbs_the_engine(name: str) -> None:
    made = executor(name)
    requests = [(api, body) for api in APIS for body in single_values(api)]
    requests += [(api, body) for api in APIS for body in combinations(api, COMBINATIONS, SEED)]
    if name == "native":  # the checks before the engine are the same
        requests = requests[::4]
    async with serving(runner=ModelRunner(made), pooler=Pooler(made), num_blocks=NUM_BLOCKS, max_queue=200) as running:
        await _drive(running, requests)
