"""Replicas that follow the demand, and models that start for their first request: real processes and runtimes."""

import asyncio
from pathlib import Path

import pytest

from tests.support.command_runtimes import answered, configuration, mortal, pool, rewrite, servers
from tests.support.processes import gateway
from tests.support.traffic import traffic

pytestmark = pytest.mark.timeout(1800)


async def test_replicas_grow_with_the_demand_and_drain_after_it(tmp_path: Path) -> None:
    replicas = {"min": 0, "max": 3, "places": 2, "idle": "3s", "cpus": 1}
    async with gateway(tmp_path, configuration(mortal(replicas=replicas), workers=2)) as g:
        key = await g.demo_key()
        await answered(g, key)
        async with traffic(g.url, key, clients=12) as load:
            state = await g.until("s['replicas'][0]['ready'] == 3")
            assert "a replica" in pool(state)["reason"]
            assert 'headrace_replicas{pool="theirs",state="ready"} 3.0' in await g.metrics()
            await load.until_answered(50, 300)
        assert load.dropped == []
        assert load.statuses == {200: load.sent}
        await g.until("s['replicas'][0]['replicas'] == 0 and s['endpoints'] == []")
        async with asyncio.timeout(300):
            while servers(g):
                await asyncio.sleep(0.1)
        assert (await answered(g, key))["model"] == "chat"


@pytest.mark.parametrize("workers", [1, 2])
async def test_a_cold_model_starts_for_a_request_and_stops_when_it_is_idle(tmp_path: Path, workers: int) -> None:
    replicas = {"min": 0, "max": 1, "idle": "3s", "warm_up": True}
    async with gateway(tmp_path, configuration(mortal(replicas=replicas), workers=workers)) as g:
        key = await g.demo_key()  # the gateway is ready, although nothing runs
        state = await g.state()
        assert (state["endpoints"], pool(state)["replicas"]) == ([], 0)
        assert (await g.chat(key))[0] == 200
        state = await g.until("s['replicas'][0]['replicas'] == 0 and s['endpoints'] == []")
        assert pool(state)["start_seconds"] > 0
        assert "no request for 3 s" in pool(state)["reason"]
        assert (await g.chat(key))[0] == 200


async def test_a_reload_to_and_from_zero_loses_no_request(tmp_path: Path) -> None:
    async with gateway(tmp_path, configuration(mortal(replicas=1))) as g:
        key = await g.demo_key()
        await answered(g, key)
        async with traffic(g.url, key, clients=4) as load:
            for replicas in ({"min": 0, "max": 2, "idle": "1s"}, {"min": 2}, {"min": 0, "max": 1}):
                rewrite(g, mortal(replicas={**replicas, "cpus": 1}))
                await g.printed("configuration reloaded")
                g.output = ""
                await load.until_answered(40, 300)
        assert load.dropped == []
        assert load.statuses == {200: load.sent}
