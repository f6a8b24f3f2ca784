"""Several models on one device: real processes, never more than fit, and every request is answered."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.support.command_runtimes import mortal, servers
from tests.support.processes import gateway

pytestmark = pytest.mark.timeout(1800)
MODELS = ("red", "green", "blue")


def configuration() -> dict[str, Any]:
    replicas = {"min": 0, "max": 1, "device": "machine", "memory": "4GiB"}
    runtime = mortal(replicas=replicas)
    return {
        "workers": 2,
        "auth": {"demo_key": True},
        "devices": [{"name": "machine", "memory": "8GiB", "patience": "2s"}],
        "pools": [{"name": name, "runtime": runtime} for name in MODELS],
        "models": [{"name": name, "routes": [{"to": name, "timeout": {"total": "10m"}}]} for name in MODELS],
        "tenants": [{"name": "acme", "models": ["*"]}],
    }


async def test_three_models_on_a_device_for_two_are_swapped_and_answer(tmp_path: Path) -> None:
    async with gateway(tmp_path, configuration()) as g:
        key = await g.demo_key()
        most = 0

        async def client(at: int) -> None:
            for turn in range(4):
                status, answer = await g.chat(key, model=MODELS[(at + turn) % 3])
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
