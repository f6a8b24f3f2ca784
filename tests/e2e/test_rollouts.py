"""Rollouts over real processes: a healthy arm gets all requests by itself, a worse one is taken back by itself."""

import asyncio
import json
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from adapters.http1.message import Response
from tests.support.processes import GatewayProcess, command, gateway
from tests.support.upstreams import Behaviour, Upstream, stream, upstream, whole

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
    """Users that repeat one request each until the rollout has a status, and may report values for the answers."""

    def __init__(self, g: GatewayProcess, key: str, *, reports: bool = False, **fields: Any) -> None:
        self._g = g
        self._reports = reports
        self._fields = fields
        self._headers = {"authorization": f"Bearer {key}"}
        self._stopped = False
        self.statuses = set[int]()
        self.arms = set[str]()

    async def one(self, http: aiohttp.ClientSession) -> str:
        """The arm of one request. Each value for the new arm is a thumb down."""
        body = {"model": "chat", "messages": [{"role": "user", "content": "hi"}], **self._fields}
        async with http.post("/v1/chat/completions", json=body) as response:
            await response.read()
            id_, arm = response.headers["x-request-id"], response.headers.get("x-headrace-arm", "")
            self.statuses.add(response.status)
            self.arms.add(arm)
        if not self._reports:
            return arm
        report = {"id": id_, "metric": "thumb", "value": "down" if arm == "v2" else "up"}
        async with http.post("/v1/feedback", json=report) as response:
            assert response.status in (200, 404), "404 before the rollout has begun"
        return arm

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


def sometimes(usual: Response | str, other: Response | str, each: int) -> Behaviour:
    """A server whose every so many answers are another one, evenly. Texts are whole or streamed as requested."""
    count = 0

    async def behave(body: dict[str, Any]) -> Response:
        nonlocal count
        count += 1
        chosen = other if count % each == 0 else usual
        if isinstance(chosen, Response):
            return chosen
        return stream(chosen) if body.get("stream") else whole(chosen)

    return behave


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


async def test_an_arm_with_failures_is_taken_back_by_itself(tmp_path: Path) -> None:
    """10 % of its requests fail. A fallback answers them, so that no client notices."""
    async with upstream() as v1, upstream() as v2, gateway(tmp_path, configuration(v1, v2)) as g:
        v2.behaviour = sometimes("new", Response(500, [], b"{}"), 10)
        traffic = Traffic(g, await g.key())
        view = await traffic.until("back")
        assert (view["reason"], view["weight"], traffic.statuses) == ("failures", 0.0, {200})
        assert view["back_if"][0]["e_value"] >= 100
        assert view["back_if"][0]["events"]["from"] == 0
        await traffic.until_arm("v1")
        status, printed, _ = await command("rollout", "show", "r", "--config", str(g.config))
        assert (status, "back (failures)" in printed) == (0, True)


@pytest.mark.parametrize("metric", ["refusals", "blocked", "feedback"])
async def test_an_arm_is_taken_back_for_the_content_of_its_answers(tmp_path: Path, metric: str) -> None:
    """Refusals in streams, answers that a guard blocks, and thumbs down."""
    condition = {"metric": metric, "above": "1.2x", **({"of": "thumb"} if metric == "feedback" else {})}
    async with upstream() as v1, upstream("Hello.") as v2, upstream() as judge:
        file = configuration(v1, v2, back_if=[condition])
        if metric == "feedback":
            file["feedback"] = [{"name": "thumb", "type": "thumbs"}]
        if metric == "refusals":
            v2.behaviour = sometimes("Hello.", "I'm sorry, but I can't help with that.", 4)
        if metric == "blocked":
            judge.behaviour = sometimes("safe", "unsafe", 5)
            guard = {"model": "judge", "block_if": 'text == "unsafe"', "on": "answer"}
            steps = [{"name": "draft", "model": "plain"}, {"name": "guard", "guard": guard}]
            file["models"][0]["routes"][0]["rollout"]["to"] = {"model": "guarded", "name": "v2"}
            file["pools"].append({"name": "judge", "endpoints": [judge.url]})
            file["models"] += [
                {"name": "plain", "routes": [{"to": "v2"}]},
                {"name": "judge", "routes": [{"to": "judge"}]},
                {"name": "guarded", "pipeline": {"steps": steps}},
            ]
        async with gateway(tmp_path, file) as g:
            traffic = Traffic(g, await g.key(), reports=metric == "feedback", stream=metric == "refusals")
            view = await traffic.until("back")
            assert view["reason"] == ("feedback:thumb" if metric == "feedback" else metric)
            assert view["back_if"][0]["events"]["to"] > view["back_if"][0]["events"]["from"]


async def test_wrong_answers_of_copies_reach_no_client(tmp_path: Path) -> None:
    """The first step is shadow traffic. A third of the answers is wrong: the rollout goes back before the next."""
    copies = {"share": "50%", "answers": 60, "agree": "90%", "at_most": {"concurrency": 16, "requests": "10000/s"}}
    async with upstream() as v1, upstream() as v2, gateway(tmp_path, configuration(v1, v2, shadow_first=copies)) as g:
        v2.behaviour = sometimes("hello there", "wrong", 3)
        traffic = Traffic(g, await g.key())
        view = await traffic.until("back")
        assert (view["reason"], view["weight"], view["assigned"]["to"]) == ("shadow", 0.0, 0)
        assert (traffic.statuses, traffic.arms) == ({200}, {"v1"})
        assert (await g.administer("GET", "/admin/shadows/r"))[1]["verdict"] == "differs"


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
