"""Rollouts over real processes: a healthy arm gets all requests by itself, a worse one is taken back by itself."""

import asyncio
import json
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from adapters.http1.message import Response
from tests.support.processes import GatewayProcess, command, gateway
from tests.support.upstreams import Upstream, upstream, whole

pytestmark = pytest.mark.timeout(1800)
STEPS = [{"weight": "20%", "for": "2s"}, {"weight": "50%", "for": "2s"}]
USERS = 16


def configuration(v1: Upstream, v2: Upstream, workers: int = 1, **rollout: Any) -> dict[str, Any]:
    written = {"name": "r", "from": "v1", "to": "v2", "steps": STEPS, "warmup": "200ms", "requests": 50, **rollout}
    return {
        "workers": workers,
        "pools": [{"name": name, "endpoints": [up.url]} for name, up in (("v1", v1), ("v2", v2))],
        "models": [{"name": "chat", "routes": [{"rollout": written, "fallback": ["v1"]}]}],
        "tenants": [{"name": "acme", "models": ["*"]}],
    }


class Traffic:
    """Clients that repeat one request each until the end of the test."""

    def __init__(self, g: GatewayProcess, key: str, users: int = USERS, **fields: Any) -> None:
        self._users = users
        self._fields = fields
        self._url = f"{g.url}/v1/chat/completions"
        self._headers = {"authorization": f"Bearer {key}"}
        self.statuses: dict[int, int] = {}
        self.arms: dict[str, int] = {}
        self._stopped = False

    async def _client(self, http: aiohttp.ClientSession) -> None:
        body = {"model": "chat", "messages": [{"role": "user", "content": "hi"}], **self._fields}
        while not self._stopped:
            async with http.post(self._url, json=body, headers=self._headers) as response:
                await response.read()
                arm = response.headers.get("x-headrace-arm", "")
                self.statuses[response.status] = self.statuses.get(response.status, 0) + 1
                self.arms[arm] = self.arms.get(arm, 0) + 1
            await asyncio.sleep(0.002)

    async def until(self, g: GatewayProcess, status: str, seconds: float = 600.0) -> dict[str, Any]:
        """Send until the rollout has a status. Returns the rollout as the admin API shows it."""
        self._stopped = False
        async with aiohttp.ClientSession() as http, asyncio.TaskGroup() as clients:
            for _ in range(self._users):
                clients.create_task(self._client(http))
            try:
                async with asyncio.timeout(seconds):
                    while (view := await shown(g))["status"] != status:
                        await asyncio.sleep(0.05)
            finally:
                self._stopped = True
        return view


async def shown(g: GatewayProcess) -> dict[str, Any]:
    async with aiohttp.ClientSession() as http, http.get(f"{g.admin}/admin/rollouts/r") as response:
        assert response.status == 200, await response.text()
        view: dict[str, Any] = await response.json()
        return view


async def ordered(g: GatewayProcess, verb: str) -> tuple[int, dict[str, Any]]:
    async with (
        aiohttp.ClientSession() as http,
        http.post(f"{g.admin}/admin/rollouts/r/{verb}", json={}) as response,
    ):
        return response.status, await response.json()


async def arm_of(g: GatewayProcess, key: str) -> str:
    body = {"model": "chat", "messages": [{"role": "user", "content": "hi"}]}
    headers = {"authorization": f"Bearer {key}"}
    async with (
        aiohttp.ClientSession() as http,
        http.post(f"{g.url}/v1/chat/completions", json=body, headers=headers) as response,
    ):
        await response.read()
        return response.headers["x-headrace-arm"]


def failing(share: float) -> Any:
    """A server of which a share of the requests fails, evenly."""
    count = 0

    async def behave(_: dict[str, Any]) -> Response:
        nonlocal count
        count += 1
        return Response(500, [], b"{}") if int(count * share) > int((count - 1) * share) else whole("new")

    return behave


@pytest.mark.parametrize("workers", [1, 2])
async def test_a_healthy_arm_gets_all_requests_by_itself(tmp_path: Path, workers: int) -> None:
    async with upstream() as v1, upstream() as v2, gateway(tmp_path, configuration(v1, v2, workers)) as g:
        traffic = Traffic(g, key := await g.key())
        view = await traffic.until(g, "done")
        assert view["weight"] == 1.0
        assert traffic.statuses.keys() == {200}
        assert view["requests"]["to"] >= 100
        assert view["sample_ratio"]["e_value"] < 1000
        for _ in range(5):
            assert await arm_of(g, key) == "v2"
        log = await command("audit", "list", "--json", "--config", str(g.config))
        actions = [entry["action"] for entry in json.loads(log[1])[::-1] if entry["target"] == "r"]
        assert actions == ["rollout.start", "rollout.running", "rollout.done"]


@pytest.mark.parametrize("workers", [1, 2])
async def test_an_arm_with_failures_is_taken_back_by_itself(tmp_path: Path, workers: int) -> None:
    """10 % of its requests fail. A fallback answers them, so that no client notices."""
    steps = [{"weight": "50%", "for": "5m"}]
    async with (
        upstream() as v1,
        upstream() as v2,
        gateway(tmp_path, configuration(v1, v2, workers, steps=steps)) as g,
    ):
        v2.behaviour = failing(0.1)
        traffic = Traffic(g, key := await g.key())
        view = await traffic.until(g, "back")
        assert (view["reason"], view["weight"]) == ("failures", 0.0)
        assert traffic.statuses.keys() == {200}
        assert view["back_if"][0]["e_value"] >= 100
        assert view["back_if"][0]["events"]["from"] == 0
        before = len(v2.received)
        for _ in range(20):
            assert await arm_of(g, key) == "v1"
        assert len(v2.received) == before
        status, printed, _ = await command("rollout", "show", "r", "--config", str(g.config))
        assert status == 0
        assert "back (failures)" in printed


async def test_a_slower_arm_is_taken_back_by_itself(tmp_path: Path) -> None:
    condition = {"metric": "first_byte", "slower_than": "50ms", "above": "1.3x"}
    settings: dict[str, Any] = {"steps": [{"weight": "20%", "for": "5m"}], "back_if": [condition]}
    async with upstream() as v1, upstream() as v2, gateway(tmp_path, configuration(v1, v2, **settings)) as g:

        async def slow(_: dict[str, Any]) -> Response:
            await asyncio.sleep(0.1)
            return whole("new")

        v2.behaviour = slow
        view = await Traffic(g, await g.key()).until(g, "back")
        assert view["reason"] == "first_byte>50ms"


async def test_operators_pause_continue_and_take_back(tmp_path: Path) -> None:
    steps = [{"weight": "1%", "for": "1h"}, {"weight": "50%", "for": "1h"}]
    async with upstream() as v1, upstream() as v2, gateway(tmp_path, configuration(v1, v2, steps=steps)) as g:
        key = await g.key()
        async with asyncio.timeout(60):
            while (await shown(g))["status"] == "not begun":
                await asyncio.sleep(0.05)
        assert (await ordered(g, "pause"))[1]["reason"] == "paused"
        assert (await ordered(g, "on"))[1]["status"] == "running"
        assert (await ordered(g, "on"))[1]["weight"] == 0.5
        config = ("--config", str(g.config))
        assert (await command("rollout", "on", "r", *config))[0] == 0
        async with asyncio.timeout(120):
            while (await shown(g))["status"] != "done":
                await asyncio.sleep(0.02)
        assert await arm_of(g, key) == "v2"
        assert (await command("rollout", "back", "r", *config))[0] == 0
        async with asyncio.timeout(120):
            while await arm_of(g, key) != "v1":
                await asyncio.sleep(0.02)
        status, body = await ordered(g, "back")
        assert (status, body["error"]["code"]) == (409, "order_refused")
        status, listed, _ = await command("rollout", "list", *config)
        assert "r: back (operator), step 2 of 2, weight 0" in listed
        status, _, error = await command("rollout", "back", "other", *config)
        assert (status, "no rollout 'other'" in error) == (1, True)


async def test_a_killed_gateway_continues_with_its_share(tmp_path: Path) -> None:
    steps = [{"weight": "100%", "for": "1h"}]
    async with upstream() as v1, upstream() as v2:
        file = configuration(v1, v2, steps=steps)
        async with gateway(tmp_path, file) as g:
            key = await g.key()
            async with asyncio.timeout(60):
                while await arm_of(g, key) != "v2":
                    await asyncio.sleep(0.02)
            g.process.kill()
            await g.process.wait()
        async with gateway(tmp_path, file) as g:
            assert await arm_of(g, await g.key()) == "v2"
