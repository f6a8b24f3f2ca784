"""vLLM servers that sleep while they are not needed, behind a real gateway. `SleepingVllm` stands in for vLLM."""

from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from tests.support.command_runtimes import pool
from tests.support.processes import gateway
from tests.support.sleeping_vllm import configuration, sleeping_vllm
from tests.support.traffic import traffic

pytestmark = pytest.mark.timeout(1200)


async def test_servers_sleep_without_requests_and_wake_for_them(tmp_path: Path) -> None:
    asleep = "s['replicas'][0]['asleep'] == 3 and s['replicas'][0]['replicas'] == 0"
    async with AsyncExitStack() as stack:
        servers = [await stack.enter_async_context(sleeping_vllm()) for _ in range(3)]
        urls = [server.url for server in servers]
        written = configuration(urls, workers=2, min=0, max=3, idle="1s", sleep=2)
        g = await stack.enter_async_context(gateway(tmp_path, written))
        key = await g.demo_key()
        await g.until(asleep)
        assert not any(server.awake.is_set() for server in servers)
        assert (await g.chat(key))[0] == 200
        assert [server.ended for server in servers] == [1, 0, 0], "more servers than needed are awake"
        for server in servers:
            server.seconds = 0.2
        async with traffic(g.url, key, clients=12) as load:
            state = await g.until("s['replicas'][0]['ready'] == 3")
            assert "a replica" in pool(state)["reason"]
            await load.until_answered(50, 300)
        assert load.dropped == []
        assert load.statuses == {200: load.sent}
        await g.until(asleep)
        assert sum(server.surprised + server.spoilt for server in servers) == 0
        sleeps = {order for server in servers for order in server.orders if "/sleep" in order}
        assert sleeps == {"/sleep?level=2&mode=wait"}
