"""Batches whose gateways and workers are killed at random: one line for each line, and one charge."""

import asyncio
import os
import signal
from pathlib import Path
from random import Random
from typing import Any

import openai
import pytest
from openai.types import Batch

from adapters.http1.message import Response
from tests.support.batches import COST, answers, batched, chat_line, client, results, submitted
from tests.support.processes import GatewayProcess, gateway
from tests.support.upstreams import Upstream, upstream, whole
from tests.support.usage import reported

pytestmark = pytest.mark.timeout(7200)
ENDED = ("completed", "failed", "expired", "cancelled")


def settings(up: Upstream, folder: Path, workers: int) -> dict[str, Any]:
    made = batched(up, folder, workers=workers)
    return {**made, "batches": {**made["batches"], "takeover": "2s"}}


async def status(sdk: openai.AsyncOpenAI, id_: str) -> Batch | None:
    """The batch; None while the gateway or its worker is dead."""
    try:
        return await sdk.batches.retrieve(id_)
    except (openai.APIConnectionError, openai.InternalServerError):
        return None


async def kill(g: GatewayProcess, dice: Random, *, whole_gateway: bool) -> None:
    """End a worker, or all processes, without any cleanup."""
    if whole_gateway:
        await g.stop(signal.SIGKILL)
        return
    pids = [worker["pid"] for worker in (await g.state())["workers"] if worker["pid"]]
    if pids:
        try:
            os.kill(dice.choice(pids), signal.SIGKILL)
        except ProcessLookupError:
            return


async def run_with_kills(folder: Path, seed: int, lines: int, kills: int) -> None:
    dice, workers = Random(seed), 2
    async with upstream() as up:

        async def answer(body: dict[str, Any]) -> Response:
            await asyncio.sleep(dice.uniform(0.0, 0.05))
            return whole(body["messages"][0]["content"])

        up.behaviour = answer
        made: Batch | None = None
        key, left = "", kills
        while True:
            async with gateway(folder, settings(up, folder, workers)) as g:
                await g.until_ready(workers)
                key = key or await g.key()
                async with client(g, key) as sdk:
                    if made is None:
                        made = await submitted(sdk, [chat_line(f"id-{i}", f"text {i}") for i in range(lines)])
                    whole_gateway = False
                    while not whole_gateway:
                        await asyncio.sleep(dice.uniform(0.0, 1.5))
                        batch = await status(sdk, made.id)
                        if batch is not None and batch.status in ENDED and not left:
                            await check(g, sdk, batch, lines)
                            return
                        if left:
                            left -= 1
                            whole_gateway = dice.random() < 0.3
                            await kill(g, dice, whole_gateway=whole_gateway)


async def check(g: GatewayProcess, sdk: openai.AsyncOpenAI, batch: Batch, lines: int) -> None:
    assert batch.status == "completed"
    assert batch.request_counts is not None
    assert batch.request_counts.model_dump() == {"total": lines, "completed": lines, "failed": 0}
    output = await results(sdk, batch.output_file_id)
    assert answers(output) == {f"id-{i}": f"text {i}" for i in range(lines)}
    assert batch.usage is not None
    assert (batch.usage.input_tokens, batch.usage.output_tokens) == (5 * lines, 7 * lines)
    _, body = await reported(g, tenant="acme")
    (row,) = body["usage"]
    assert (row["requests"], row["picos"], row["failures"]) == (lines, lines * COST, 0)
    assert (row["prompt_tokens"], row["completion_tokens"]) == (5 * lines, 7 * lines)


async def test_killed_gateways_and_workers_leave_one_line_and_one_charge_for_each_line(tmp_path: Path) -> None:
    await run_with_kills(tmp_path, seed=1, lines=1200, kills=5)


@pytest.mark.nightly
async def test_two_hundred_kills_leave_ten_thousand_lines(tmp_path: Path) -> None:
    await run_with_kills(tmp_path, seed=2, lines=10_000, kills=200)
