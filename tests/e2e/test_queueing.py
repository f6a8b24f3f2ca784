"""Queues of a full pool in a real gateway: two tenants, a reload while requests wait, and a client that leaves."""

import asyncio
from pathlib import Path
from typing import Any

import aiohttp
import yaml

from adapters.http1.message import Response
from tests.e2e.test_operations import chat, until_status
from tests.support.processes import gateway, issue
from tests.support.upstreams import upstream, whole


async def metric(admin: str, line: str) -> float:
    async with aiohttp.ClientSession() as http, http.get(f"{admin}/metrics") as response:
        lines = (await response.text()).splitlines()
    return sum(float(text.rpartition(" ")[2]) for text in lines if text.startswith(line))


async def test_those_that_wait_are_served_in_turns_across_a_reload(tmp_path: Path) -> None:
    async with upstream() as up:
        gate = asyncio.Semaphore(0)

        async def when_let(_: dict[str, Any]) -> Response:
            await gate.acquire()
            return whole("hello")

        configuration = {
            "pools": [{"name": "up", "endpoints": [up.url], "queue": {"max_in_flight": 1, "max": 8}}],
            "models": [{"name": "chat", "routes": [{"to": "up"}]}],
            "tenants": [{"name": name, "models": ["*"]} for name in ("flood", "light")],
        }
        async with gateway(tmp_path, configuration) as g:
            keys = {tenant: await issue(g, tenant) for tenant in ("flood", "light")}
            gate.release()
            await until_status(g, keys["light"], 200)
            gate.release()
            await until_status(g, keys["flood"], 200)
            up.received.clear()
            up.behaviour = when_let
            while not gate.locked():
                await gate.acquire()

            calls = [asyncio.create_task(chat(g, keys["flood"], user="flood")) for _ in range(5)]
            await g.until("s['queues'][0]['waiting'] == 4")
            calls.append(asyncio.create_task(chat(g, keys["light"], user="light")))
            leaving = asyncio.create_task(chat(g, keys["light"], user="light"))
            await g.until("s['queues'][0]['by_tenant'] == {'flood': 4, 'light': 2}")
            assert await metric(g.admin, 'headrace_queue_depth{pool="up",priority="normal"}') == 6

            written = yaml.safe_load(g.config.read_text())
            written["pools"][0]["queue"]["max"] = 6
            g.config.write_text(yaml.safe_dump(written, sort_keys=False))
            await g.printed("configuration reloaded")
            status, refused = await chat(g, keys["flood"], user="flood")
            assert (status, refused["error"]["code"]) == (503, "overloaded")
            leaving.cancel()
            await g.until("s['queues'][0]['waiting'] == 5")

            for _ in calls:
                gate.release()
            assert [status for status, _ in await asyncio.gather(*calls)] == [200] * 6
            users = [body["user"] for body in up.received]
            assert users.index("light") <= 2  # four of the other's came before
            state = await g.until_idle()
            assert state["queues"][0]["waiting"] == 0
            assert await metric(g.admin, 'headrace_queue_ended_total{end="cancelled",pool="up"') == 1
            assert await metric(g.admin, 'headrace_queue_wait_seconds_count{pool="up"}') == 5
