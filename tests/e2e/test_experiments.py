"""Experiments over real processes: clients report values, and the better arm wins by itself."""

import asyncio
import json
import random
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.support.processes import GatewayProcess, command, gateway
from tests.support.upstreams import Upstream, upstream

BODY = {"model": "chat", "messages": [{"role": "user", "content": "hi"}]}
FEEDBACK = [{"name": "solved", "within": "1h"}, {"name": "stars", "type": "number", "min": 1, "max": 5}]


def configuration(a: Upstream, b: Upstream, workers: int = 1, **experiment: Any) -> dict[str, Any]:
    written = {"name": "tone", "arms": ["a", "b"], "metric": "solved", "warmup": "0s", **experiment}
    return {
        "workers": workers,
        "feedback": FEEDBACK,
        "pools": [{"name": name, "endpoints": [up.url]} for name, up in (("a", a), ("b", b))],
        "models": [{"name": "chat", "routes": [{"experiment": written}]}],
        "tenants": [{"name": "acme", "models": ["*"]}, {"name": "other", "models": ["*"]}],
    }


class App:
    """An app whose users report whether an answer has solved their problem."""

    def __init__(self, g: GatewayProcess, key: str, rates: dict[str, float], seed: int = 0) -> None:
        self._g = g
        self._key = key
        self._rates = rates
        self._rng = random.Random(seed)
        self.reported = {"a": 0, "b": 0}
        self.statuses: set[int] = set()

    async def ask(self, http: aiohttp.ClientSession, **headers: str) -> tuple[str, str]:
        """The id of an answer and its arm."""
        url, own = f"{self._g.url}/v1/chat/completions", {"authorization": f"Bearer {self._key}", **headers}
        async with http.post(url, json=BODY, headers=own) as response:
            await response.read()
            assert response.status == 200
            return response.headers["x-request-id"], response.headers["x-headrace-arm"]

    async def report(self, http: aiohttp.ClientSession, key: str = "", **body: Any) -> tuple[int, dict[str, Any]]:
        headers = {"authorization": f"Bearer {key or self._key}"}
        async with http.post(f"{self._g.url}/v1/feedback", json=body, headers=headers) as response:
            return response.status, await response.json()

    async def _user(self, http: aiohttp.ClientSession) -> None:
        id, arm = await self.ask(http)
        solved = self._rng.random() < self._rates[arm]
        for _ in range(self._rng.choice((1, 1, 2))):  # some report twice
            status, _ = await self.report(http, id=id, metric="solved", value=solved)
            self.statuses.add(status)
        self.reported[arm] += status == 200

    async def serve(self, users: int) -> None:
        async with aiohttp.ClientSession() as http:
            for _ in range(users // 20):
                await asyncio.gather(*(self._user(http) for _ in range(20)))


async def admin(g: GatewayProcess, path: str = "") -> dict[str, Any]:
    status, shown = await g.administer("GET", f"/admin/experiments/tone{path}")
    assert status == 200, shown
    return dict(shown)


async def begun(app: App) -> None:
    """Wait until every worker signs the ids of its requests: each try has a connection, and so a worker, of its own."""
    signed = 0
    async with asyncio.timeout(300):
        while signed < 20:
            async with aiohttp.ClientSession() as http:
                id, _ = await app.ask(http)
            signed = signed + 1 if len(id) == 44 else 0


async def until(g: GatewayProcess, holds: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    """The experiment when it is as expected."""
    async with asyncio.timeout(300):
        while not holds(view := await admin(g)):
            await asyncio.sleep(0.05)
    return view


def samples(view: dict[str, Any], metric: str = "solved") -> list[int]:
    return [arm["samples"] for arm in view["metrics"][metric]["arms"]]


async def test_the_better_arm_wins_by_itself(tmp_path: Path) -> None:
    async with (
        upstream() as a,
        upstream() as b,
        gateway(tmp_path, configuration(a, b, workers=2, then="winner")) as g,
    ):
        app = App(g, await g.key(), {"a": 0.3, "b": 0.8})
        await begun(app)
        await app.serve(400)
        await until(g, lambda view: (view["status"], view.get("winner")) == ("decided", "b"))
        assert app.statuses <= {200, 404}  # requests after the end have plain ids
        view = await until(g, lambda view: sum(samples(view)) >= sum(app.reported.values()))
        arms = view["metrics"]["solved"]["arms"]
        low, high = arms[1]["interval"]
        assert 0 < low < 0.5 < high < 1
        assert samples(view) == [app.reported["a"], app.reported["b"]]
        assert arms[1]["e_value"]["better"] >= view["needed"] == pytest.approx(40)
        assert max(view["sample_ratio"]["e_value"], view["feedback_ratio"]["e_value"]) < 1000
        async with aiohttp.ClientSession() as http, asyncio.timeout(300):
            while {(await app.ask(http))[1] for _ in range(10)} != {"b"}:
                await asyncio.sleep(0.05)
        points = (await admin(g, "/series"))["points"]
        assert points
        assert len(points[-1]["arms"]) == 2
        config = ("--config", str(g.config))
        status, printed, _ = await command("experiment", "show", "tone", *config)
        assert status == 0
        assert "tone: decided, winner b" in printed
        status, printed, _ = await command("experiment", "list", "--json", *config)
        assert json.loads(printed)[0]["winner"] == "b"
        log = await command("audit", "list", "--json", *config)
        actions = [entry["action"] for entry in json.loads(log[1])[::-1] if entry["target"] == "tone"]
        assert actions[-1] == "experiment.decided"


async def test_ids_are_of_one_tenant_and_cannot_be_forged(tmp_path: Path) -> None:
    async with upstream() as a, upstream() as b, gateway(tmp_path, configuration(a, b, sticky="user")) as g:
        app, other = App(g, await g.key(), {}), await g.key("other")
        await begun(app)
        async with aiohttp.ClientSession() as http:
            id, _ = await app.ask(http)
            changed = id[:-5] + ("A" if id[-5] != "A" else "B") + id[-4:]
            for forged in (changed, id[:-1], id + "A", "req_" + "A" * 40, "x", "é" * 40, id.upper()):
                status, body = await app.report(http, id=forged, metric="solved", value=True)
                assert (status, body["error"]["code"]) == (404, "feedback_unknown"), forged
            status, body = await app.report(http, other, id=id, metric="solved", value=True)
            assert (status, body["error"]["code"]) == (404, "feedback_unknown")
            subject: dict[str, Any] = {"experiment": "tone", "subject": "ann", "metric": "solved", "value": True}
            assert (await app.report(http, other, **subject))[0] == 404
            assert (await app.report(http, id=id, metric="stars", value=9))[1]["error"]["code"] == "invalid_value"
            assert (await app.report(http, id=id, metric="solved", value=True))[0] == 200
            assert (await app.report(http, "hr-wrong", id=id, metric="solved", value=True))[0] == 401
            status, body = await app.report(http, id=id, values={"x" * 20_000: 1})
            assert (status, body["error"]["code"]) == (413, "request_too_large")
            own = "my-request-1"
            async with http.post(
                f"{g.url}/v1/chat/completions",
                json={**BODY, "user": "ann"},
                headers={"authorization": f"Bearer {app._key}", "x-request-id": own},
            ) as response:
                assert response.headers["x-request-id"] == own
                signed = response.headers["x-headrace-feedback-id"]
            assert (await app.report(http, id=signed, values={"solved": False, "stars": 4}))[0] == 200
            async with asyncio.timeout(60):  # the decider stores a subject within seconds
                while (await app.report(http, **{**subject, "subject": "ann"}))[0] != 200:
                    await asyncio.sleep(0.1)
        view = await until(g, lambda view: sum(samples(view)) >= 2)
        assert (sum(samples(view)), sum(samples(view, "stars"))) == (2, 1)


async def test_a_late_value_is_refused(tmp_path: Path) -> None:
    async with upstream() as a, upstream() as b:
        file = configuration(a, b)
        file["feedback"] = [{"name": "solved", "within": "1s"}]
        async with gateway(tmp_path, file) as g:
            app = App(g, await g.key(), {})
            await begun(app)
            async with aiohttp.ClientSession() as http:
                id, _ = await app.ask(http)
                async with asyncio.timeout(60):
                    while (reply := await app.report(http, id=id, metric="solved", value=True))[0] == 200:
                        await asyncio.sleep(0.2)
        assert (reply[0], reply[1]["error"]["code"]) == (409, "feedback_late")


async def test_operators_pause_continue_and_stop(tmp_path: Path) -> None:
    async with upstream() as a, upstream() as b, gateway(tmp_path, configuration(a, b)) as g:
        app = App(g, await g.key(), {})
        await begun(app)
        config = ("--config", str(g.config))
        assert (await command("experiment", "pause", "tone", *config))[0] == 0
        await until(g, lambda view: (view["status"], view["reason"]) == ("held", "paused"))
        assert (await command("experiment", "on", "tone", *config))[0] == 0
        await until(g, lambda view: view["status"] == "running")
        async with aiohttp.ClientSession() as http, asyncio.timeout(60):
            for expected in ((200, "stopped", None), (409, None, "order_refused")):
                status, body = await g.administer("POST", "/admin/experiments/tone/stop", {})
                assert (status, body.get("status"), body.get("error", {}).get("code")) == expected
            assert (await g.administer("GET", "/admin/experiments/none"))[0] == 404
            metrics = await g.metrics()
            assert 'headrace_experiment_status{experiment="tone",status="stopped"} 1.0' in metrics
            assert "headrace_feedback_values_total" in metrics
            while {(await app.ask(http))[1] for _ in range(10)} != {"a"}:
                await asyncio.sleep(0.05)
        status, _, error = await command("experiment", "stop", "other", *config)
        assert (status, "no experiment 'other'" in error) == (1, True)
        status, _, error = await command("rollout", "back", "tone", *config)
        assert (status, "no rollout 'tone'" in error) == (1, True)


async def test_a_killed_gateway_continues_and_old_ids_stay_valid(tmp_path: Path) -> None:
    rates = {"a": 0.5, "b": 0.5}
    async with upstream() as a, upstream() as b:
        file = configuration(a, b, workers=2)
        async with gateway(tmp_path, file) as g:
            app = App(g, await g.key(), rates)
            await begun(app)
            await app.serve(100)
            async with aiohttp.ClientSession() as http:
                id, arm = await app.ask(http)
            await g.stop(signal.SIGKILL)
        async with gateway(tmp_path, file) as g:
            again = App(g, await g.key(), rates)
            await begun(again)
            async with aiohttp.ClientSession() as http:
                assert (await again.report(http, id=id, metric="solved", value=True))[0] == 200
            await again.serve(100)
            reported = [app.reported[each] + again.reported[each] + (each == arm) for each in ("a", "b")]
            assert samples(await until(g, lambda view: sum(samples(view)) >= sum(reported))) == reported
