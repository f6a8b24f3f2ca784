"""vLLM servers that sleep while they are not needed, behind a real gateway. `SleepingVllm` stands in for vLLM."""

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.test_programs import KEY
from tests.e2e.test_scaling import one, pool
from tests.support.processes import GatewayProcess, gateway
from tests.support.sleeping_vllm import SleepingVllm, sleeping_vllm
from tests.support.traffic import traffic

pytestmark = pytest.mark.timeout(1200)
SLEEP = {"places": 2, "hold": "1s", "sleep": 1}


def configuration(servers: Sequence[str], *, workers: int = 1, **scale: Any) -> dict[str, Any]:
    vllm = {
        "name": "vllm",
        "protocol": {"name": "openai", "dialect": "vllm"},
        "endpoints": list(servers),
        "probe": {"interval": "1s"},
        "scale": {**SLEEP, **scale},
    }
    return {
        "listen": {"http": "127.0.0.1:0", "admin": "127.0.0.1:0"},
        "workers": workers,
        "auth": {"demo_key": True},
        "pools": [vllm],
        "models": [{"name": "chat", "routes": [{"to": "vllm", "timeout": {"total": "5m"}}]}],
        "tenants": [{"name": "acme", "models": ["*"]}],
    }


async def all_asleep(g: GatewayProcess, servers: list[SleepingVllm]) -> None:
    await g.until(f"s['replicas'][0]['asleep'] == {len(servers)} and s['replicas'][0]['replicas'] == 0")
    assert not any(server.awake.is_set() for server in servers)


async def test_servers_sleep_without_requests_and_wake_for_them(tmp_path: Path) -> None:
    """With one process and with two workers, at the same time: they mostly wait."""
    async with asyncio.TaskGroup() as checks:
        for workers, level in ((1, 2), (2, 1)):
            folder = tmp_path / str(workers)
            folder.mkdir()
            checks.create_task(check_that_servers_sleep_and_wake(folder, workers, level))


async def check_that_servers_sleep_and_wake(folder: Path, workers: int, level: int) -> None:
    async with AsyncExitStack() as stack:
        servers = [await stack.enter_async_context(sleeping_vllm()) for _ in range(3)]
        urls = [server.url for server in servers]
        written = configuration(urls, workers=workers, min=0, max=3, idle="1s", sleep=level)
        g = await stack.enter_async_context(gateway(folder, written))
        key = (await g.printed(KEY))[1]
        await all_asleep(g, servers)
        assert (await one(g, key))[0] == 200
        assert [server.ended for server in servers] == [1, 0, 0], "more servers than needed are awake"
        for server in servers:
            server.seconds = 0.2
        async with traffic(g.url, key, clients=12) as load:
            state = await g.until("s['replicas'][0]['ready'] == 3")
            assert "a replica" in pool(state)["reason"]
            await load.until_answered(50, 300)
        assert load.dropped == []
        assert load.statuses == {200: load.sent}
        await all_asleep(g, servers)
        assert sum(server.surprised + server.spoilt for server in servers) == 0
        sleeps = {order for server in servers for order in server.orders if "/sleep" in order}
        assert sleeps == {f"/sleep?level={level}&mode=wait"}


async def test_a_server_that_another_gateway_uses_is_not_put_to_sleep(tmp_path: Path) -> None:
    """Two gateways, each with rules of its own, share two servers."""
    async with AsyncExitStack() as stack:
        servers = [await stack.enter_async_context(sleeping_vllm()) for _ in range(2)]
        urls = [server.url for server in servers]
        for name in ("few", "many"):
            (tmp_path / name).mkdir()
        few = await stack.enter_async_context(
            gateway(tmp_path / "few", configuration(urls, min=0, max=1, idle="1s", hold="3s"))
        )
        many = await stack.enter_async_context(
            gateway(tmp_path / "many", configuration(urls, min=0, max=2, idle="1s", hold="3s"))
        )
        await all_asleep(few, servers)
        key = (await many.printed(KEY))[1]
        for server in servers:
            server.seconds = 0.2
        async with traffic(many.url, key, clients=8) as load:
            await many.until("s['replicas'][0]['ready'] == 2")
            for server in servers:
                server.orders.clear()
            await load.until_answered(150, 300)
            slept = [order for server in servers for order in server.orders if "/sleep" in order]
            assert slept == [], "a server slept under the other's requests"
        assert load.dropped == []
        assert load.statuses == {200: load.sent}
        assert sum(server.surprised for server in servers) == 0
        assert (await one(few, (await few.printed(KEY))[1]))[0] == 200
        await all_asleep(many, servers)


async def test_a_server_that_does_not_wake_is_reported_once_and_another_wakes(tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        broken, works = [await stack.enter_async_context(sleeping_vllm(asleep=True)) for _ in range(2)]
        g = await stack.enter_async_context(gateway(tmp_path, configuration([broken.url, works.url], min=0, max=1)))
        key = (await g.printed(KEY))[1]
        broken.refuses = 500
        assert (await one(g, key))[0] == 200
        assert (broken.ended, works.ended) == (0, 1)
        works.refuses = 500
        works.awake.clear()  # an operator puts it to sleep
        await g.until("s['replicas'][0]['asleep'] == 2")  # a request before would wait at the server
        async with asyncio.timeout(300):
            while True:
                status, body, headers = await one(g, key)
                if status == 503 and body["error"]["code"] == "model_start_failed":
                    break
        assert "/wake_up answered with status 500" in body["error"]["message"]
        assert broken.url not in body["error"]["message"]
        assert int(headers["retry-after"]) >= 1
        assert g.output.count(f"{broken.url}: /wake_up answered with status 500") == 1
        broken.refuses = 0
        async with asyncio.timeout(300):
            while (await one(g, key))[0] != 200:
                await asyncio.sleep(0.2)
