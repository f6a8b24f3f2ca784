"""Rollouts over real processes: a healthy arm gets all requests by itself, a worse one is taken back by itself."""

import asyncio
import json
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.support.processes import GatewayProcess, command, gateway
from tests.support.upstreams import Upstream, upstream

pytestmark = pytest.mark.timeout(1800)
USERS = 16
LONG = [{"weight": "50%", "for": "1h"}]


def configuration(v1: Upstream, v2: Upstream, **rollout: Any) -> dict[str, Any]:
    written = {"name": "r", "from": "v1", "to": "v2", "steps": LONG, "warmup": "200ms", "requests": 50, **rollout}
    return {
        "workers": 2,
        "pools": [{"name": name, "endpoints": [up.url]} for name, up in (("v1", v1), ("v2", v2))],
        "models": [{"name": "chat", "routes": [{"rollout": written, "fallback": ["v1"]}]}],
        "tenants": [{"name": "acme", "models": ["*"]}],
    }


class Traffic:
    """Users that repeat one request each until the rollout has a status."""

    def __init__(self, g: GatewayProcess, key: str) -> None:
        self._g = g
        self._headers = {"authorization": f"Bearer {key}"}
        self._stopped = False
        self.statuses = set[int]()

    async def one(self, http: aiohttp.ClientSession) -> str:
        """The arm of one request."""
        body = {"model": "chat", "messages": [{"role": "user", "content": "hi"}]}
        async with http.post("/v1/chat/completions", json=body) as response:
            await response.read()
            self.statuses.add(response.status)
            return response.headers.get("x-headrace-arm", "")

    def session(self) -> aiohttp.ClientSession:
        return aiohttp.ClientSession(self._g.url, headers=self._headers)

    async def _client(self, http: aiohttp.ClientSession) -> None:
        while not self._stopped:
            await self.one(http)
            await asyncio.sleep(0.002)

    async def until(self, status: str) -> dict[str, Any]:
        """Send until the rollout has a status. Returns the rollout as the admin API shows it."""
        async with self.session() as http, asyncio.TaskGroup() as clients:
            for _ in range(USERS):
                clients.create_task(self._client(http))
            try:
                async with asyncio.timeout(600):
                    while (view := await shown(self._g))["status"] != status:
                        await asyncio.sleep(0.05)
            finally:
                self._stopped = True
        return view

    async def until_arm(self, arm: str) -> None:
        """Wait until no worker sends a request elsewhere."""
        async with self.session() as http, asyncio.timeout(300):
            while {await self.one(http) for _ in range(20)} != {arm}:
                await asyncio.sleep(0.02)


async def shown(g: GatewayProcess) -> dict[str, Any]:
    status, view = await g.administer("GET", "/admin/rollouts/r")
    assert status == 200, view
    return dict(view)


async def test_a_healthy_arm_gets_all_requests_by_itself(tmp_path: Path) -> None:
    steps = [{"weight": "20%", "for": "2s"}, {"weight": "50%", "for": "2s"}]
    async with upstream() as v1, upstream() as v2, gateway(tmp_path, configuration(v1, v2, steps=steps)) as g:
        traffic = Traffic(g, await g.key())
        view = await traffic.until("done")
        assert (view["weight"], traffic.statuses) == (1.0, {200})
        assert view["requests"]["to"] >= 100
        assert view["sample_ratio"]["e_value"] < 1000
        await traffic.until_arm("v2")
        log = await command("audit", "list", "--json", "--config", str(g.config))
        actions = [entry["action"] for entry in json.loads(log[1])[::-1] if entry["target"] == "r"]
        assert actions == ["rollout.start", "rollout.running", "rollout.done"]


async def test_operators_pause_continue_and_take_back(tmp_path: Path) -> None:
    steps = [{"weight": "1%", "for": "1h"}, {"weight": "50%", "for": "1h"}]
    async with upstream() as v1, upstream() as v2, gateway(tmp_path, configuration(v1, v2, steps=steps)) as g:

        async def ordered(verb: str) -> dict[str, Any]:
            return dict((await g.administer("POST", f"/admin/rollouts/r/{verb}", {}))[1])

        async def until(status: str) -> None:
            async with asyncio.timeout(300):
                while (await shown(g))["status"] != status:
                    await asyncio.sleep(0.02)

        traffic = Traffic(g, await g.key())
        async with asyncio.timeout(300):
            while (await shown(g))["status"] == "not begun":
                await asyncio.sleep(0.05)
        assert (await ordered("pause"))["reason"] == "paused"
        assert (await ordered("on"))["status"] == "running"
        assert (await ordered("on"))["weight"] == 0.5
        config = ("--config", str(g.config))
        assert (await command("rollout", "on", "r", *config))[0] == 0
        await until("done")
        await traffic.until_arm("v2")
        assert (await command("rollout", "back", "r", *config))[0] == 0
        await traffic.until_arm("v1")
        assert (await ordered("back"))["error"]["code"] == "order_refused"
        status, listed, _ = await command("rollout", "list", *config)
        assert "r: back (operator), step 2 of 2, weight 0" in listed
        status, _, error = await command("rollout", "back", "other", *config)
        assert (status, "no rollout 'other'" in error) == (1, True)
