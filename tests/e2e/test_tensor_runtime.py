"""A tensor runtime that the gateway starts, watches and stops, with requests through the gateway."""

import asyncio
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import numpy as np
import psutil
import pytest
import tritonclient.http.aio as client

from tests.servers.repositories import for_headrace
from tests.support.processes import GatewayProcess, gateway

pytestmark = pytest.mark.timeout(1800)

RAMP = np.arange(16, dtype=np.int32).reshape(1, 16)


def configuration(repository: Path) -> dict[str, Any]:
    return {
        "pools": [{"name": "models", "runtime": {"kind": "tensor", "repository": str(repository)}}],
        "models": [{"name": "add_sub", "routes": [{"to": "models"}]}],
        "tenants": [{"name": "acme", "models": ["*"]}],
    }


@pytest.fixture
async def running(tmp_path: Path) -> AsyncIterator[GatewayProcess]:
    repository = for_headrace(tmp_path / "models", ["add_sub"])
    async with gateway(tmp_path, configuration(repository)) as made:
        await made.printed("Ready.")
        yield made


def inputs_of_add_sub() -> list[client.InferInput]:
    inputs = [client.InferInput(f"INPUT{at}", [1, 16], "INT32") for at in (0, 1)]
    for one in inputs:
        one.set_data_from_numpy(RAMP)
    return inputs


async def test_a_client_of_triton_is_answered_through_the_gateway(running: GatewayProcess) -> None:
    headers = {"authorization": f"Bearer {await running.key()}"}
    async with client.InferenceServerClient(running.url.removeprefix("http://"), conn_timeout=60) as triton:
        result = await triton.infer("add_sub", inputs_of_add_sub(), headers=headers)
    assert (result.as_numpy("OUTPUT0") == RAMP * 2).all()


async def test_a_killed_runtime_restarts_and_answers(running: GatewayProcess) -> None:
    headers = {"authorization": f"Bearer {await running.key()}"}
    state = await running.state()
    before = state["endpoints"][0]["pid"]
    psutil.Process(before).send_signal(signal.SIGKILL)
    await running.until(f"s['endpoints'][0]['pid'] not in (None, {before})")
    async with asyncio.timeout(300), aiohttp.ClientSession(headers=headers) as http:
        body = {
            "inputs": [{"name": f"INPUT{i}", "shape": [1, 16], "datatype": "INT32", "data": [1] * 16} for i in (0, 1)]
        }
        while True:
            async with http.post(f"{running.url}/v2/models/add_sub/infer", json=body) as response:
                if response.status == 200:
                    assert (await response.json())["outputs"][0]["data"] == [2] * 16
                    break
                assert response.status in (502, 503)
            await asyncio.sleep(0.1)
    await running.until_idle()


async def test_however_the_gateway_ends_no_runtime_stays(tmp_path: Path) -> None:
    repository = for_headrace(tmp_path / "models", ["add_sub"])
    for number in (signal.SIGTERM, signal.SIGKILL):
        async with gateway(tmp_path, configuration(repository)) as made:
            state = await made.state()
            processes = [psutil.Process(state["endpoints"][0]["pid"])]
            processes += processes[0].children(recursive=True)
            await made.stop(number)
        async with asyncio.timeout(300):
            while any(process.is_running() and process.status() != psutil.STATUS_ZOMBIE for process in processes):
                await asyncio.sleep(0.05)
