"""Several models on one device: real processes, never more than fit, and every request is answered."""

import asyncio
from pathlib import Path
from typing import Any

import aiohttp
import psutil
import pytest

from tests.e2e.test_programs import KEY, MORTAL
from tests.e2e.test_scaling import _processes, sent
from tests.support.processes import GatewayProcess, gateway

pytestmark = pytest.mark.timeout(1800)
MODELS = ("red", "green", "blue")


def configuration(workers: int) -> dict[str, Any]:
    replicas = {"min": 0, "max": 1, "device": "machine", "memory": "4GiB"}
    runtime = {"kind": "command", "command": [*MORTAL, "{port}"], "ready": "/health", "replicas": replicas}
    return {
        "workers": workers,
        "auth": {"demo_key": True},
        "devices": [{"name": "machine", "memory": "8GiB", "patience": "2s"}],
        "pools": [{"name": name, "runtime": runtime} for name in MODELS],
        "models": [{"name": name, "routes": [{"to": name, "timeout": {"total": "10m"}}]} for name in MODELS],
        "tenants": [{"name": "acme", "models": ["*"]}],
    }


def servers(g: GatewayProcess) -> int:
    """The servers that run; a process may end while it is read."""
    count = 0
    for process in _processes(g):
        try:
            count += process.cmdline()[2:3] == [MORTAL[2]]
        except psutil.Error:
            continue
    return count


@pytest.mark.parametrize("workers", [1, 2])
async def test_three_models_on_a_device_for_two_are_swapped_and_answer(tmp_path: Path, workers: int) -> None:
    async with gateway(tmp_path, configuration(workers)) as g:
        key = (await g.printed(KEY))[1]
        most = 0

        async def client(at: int) -> None:
            async with aiohttp.ClientSession() as http:
                for turn in range(4):
                    body = {"model": MODELS[(at + turn) % 3], "messages": [{"role": "user", "content": "w"}]}
                    status, answer, _ = await sent(http, f"{g.url}/v1/chat/completions", key, body)
                    assert status == 200, answer

        async def look() -> None:
            nonlocal most
            while True:
                most = max(most, await asyncio.to_thread(servers, g))
                await asyncio.sleep(0.05)

        looking = asyncio.create_task(look())
        async with asyncio.timeout(900):
            await asyncio.gather(*(client(at) for at in range(9)))
        looking.cancel()
        assert 1 <= most <= 2
