"""Several replicas of a runtime: endpoints of one pool, each with its own process, health and restarts."""

import asyncio
import os
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.support.command_runtimes import answered, below, configuration, mortal, rewrite
from tests.support.processes import GatewayProcess, gateway
from tests.support.traffic import traffic

HEALTHY = "[e['health'] for e in s['endpoints']] == ['healthy'] * {}"


async def replicas(g: GatewayProcess, count: int) -> list[dict[str, Any]]:
    """The endpoints, once so many are healthy and no other is left."""
    state = await g.until(HEALTHY.format(count))
    return sorted(state["endpoints"], key=lambda each: each["replica"])


async def test_a_replica_that_is_killed_restarts_alone_while_the_others_serve(tmp_path: Path) -> None:
    async with gateway(tmp_path, configuration(mortal(replicas=3), workers=2)) as g:
        key = await g.demo_key()
        before = await replicas(g, 3)
        assert [each["endpoint"] for each in before] == ["theirs/0", "theirs/1", "theirs/2"]
        assert len({each["pid"] for each in before}) == 3
        [server] = below(before[1]["pid"])
        server.kill()
        for _ in range(20):  # attempts at the killed one are repeated at the others
            assert (await answered(g, key))["model"] == "chat"
        await g.printed(r"runtime theirs/1 was killed by signal 9; restart in 0.5 s")
        await g.until("sorted(e['restarts'] for e in s['endpoints']) == [0, 0, 1]")
        after = await replicas(g, 3)
        assert [each["restarts"] for each in after] == [0, 1, 0]
        assert [after[0]["pid"], after[2]["pid"]] == [before[0]["pid"], before[2]["pid"]]


async def test_a_reload_changes_the_replicas_without_a_lost_request(tmp_path: Path) -> None:
    async with gateway(tmp_path, configuration(mortal(replicas={"min": 1, "cpus": 1}), workers=2)) as g:
        key = await g.demo_key()
        await answered(g, key)
        [first] = await replicas(g, 1)
        async with traffic(g.url, key, clients=4) as load:
            pids = set[int]()
            for count in (3, 1):
                rewrite(g, mortal(replicas={"min": count, "cpus": 1}))
                after = await replicas(g, count)
                pids |= {each["pid"] for each in after}
                await load.until_answered(40, 300)
        assert load.dropped == []
        assert load.statuses == {200: load.sent}
        assert [each["pid"] for each in after] == [first["pid"]], "it was restarted"
        async with asyncio.timeout(300):
            while sum(map(psutil.pid_exists, pids)) > 1:
                await asyncio.sleep(0.05)


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one core cannot be divided")
async def test_replicas_divide_the_cores(tmp_path: Path) -> None:
    async with gateway(tmp_path, configuration(mortal(replicas=2))) as g:
        one, two = [set(psutil.Process(each["pid"]).cpu_affinity()) for each in await replicas(g, 2)]
        assert len(one) == len(two) == len(os.sched_getaffinity(0)) // 2
        assert not one & two
