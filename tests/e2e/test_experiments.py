"""Experiments over real processes: clients report values, and the better arm wins by itself."""

import asyncio
import json
import random
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.e2e.test_rollouts import failing
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
    async with aiohttp.ClientSession() as http, http.get(f"{g.admin}/admin/experiments/tone{path}") as response:
        assert response.status == 200, await response.text()
        shown: dict[str, Any] = await response.json()
        return shown


async def begun(g: GatewayProcess, app: App) -> None:
    """Wait until every worker signs the ids of its requests: each try has a connection, and so a worker, of its own."""
    signed = 0
    async with asyncio.timeout(300):
        while signed < 20:
            async with aiohttp.ClientSession() as http:
                id, _ = await app.ask(http)
            signed = signed + 1 if len(id) == 44 else 0


async def until(g: GatewayProcess, **fields: Any) -> dict[str, Any]:
    """The experiment when it has these fields."""
    async with asyncio.timeout(300):
        while True:
            view = await admin(g)
            if fields.items() <= view.items():
                return view
            await asyncio.sleep(0.05)


async def counted(g: GatewayProcess, count: int) -> dict[str, Any]:
    """The experiment when so many values count."""
    async with asyncio.timeout(300):
        while True:
            view = await admin(g)
            if sum(arm["samples"] for arm in view["metrics"]["solved"]["arms"]) >= count:
                return view
            await asyncio.sleep(0.05)


@pytest.mark.parametrize("workers", [1, 2])
async def test_the_better_arm_wins_by_itself(tmp_path: Path, workers: int) -> None:
    async with (
        upstream() as a,
        upstream() as b,
        gateway(tmp_path, configuration(a, b, workers, then="winner")) as g,
    ):
        app = App(g, await g.key(), {"a": 0.3, "b": 0.8})
        await begun(g, app)
        await app.serve(400)
        await until(g, status="decided", winner="b")
        assert app.statuses <= {200, 404}  # requests after the end have plain ids
        view = await counted(g, sum(app.reported.values()))
        arms = view["metrics"]["solved"]["arms"]
        low, high = arms[1]["interval"]
        assert 0 < low < 0.5 < high < 1
        assert [arm["samples"] for arm in arms] == [app.reported["a"], app.reported["b"]]
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
        await begun(g, app)
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
        view = await counted(g, 2)
        await asyncio.sleep(0)
        assert sum(arm["samples"] for arm in view["metrics"]["solved"]["arms"]) == 2
        assert sum(arm["samples"] for arm in view["metrics"]["stars"]["arms"]) == 1


async def test_a_late_value_is_refused(tmp_path: Path) -> None:
    async with upstream() as a, upstream() as b:
        file = configuration(a, b)
        file["feedback"] = [{"name": "solved", "within": "1s"}]
        async with gateway(tmp_path, file) as g:
            app = App(g, await g.key(), {})
            await begun(g, app)
            async with aiohttp.ClientSession() as http:
                id, _ = await app.ask(http)
                async with asyncio.timeout(60):
                    while (reply := await app.report(http, id=id, metric="solved", value=True))[0] == 200:
                        await asyncio.sleep(0.2)
        assert (reply[0], reply[1]["error"]["code"]) == (409, "feedback_late")


async def test_a_killed_gateway_continues_and_old_ids_stay_valid(tmp_path: Path) -> None:
    """With one process and with two workers, at the same time: the lease of the killed one has to end."""
    async with asyncio.TaskGroup() as checks:
        for workers in (1, 2):
            folder = tmp_path / str(workers)
            folder.mkdir()
            checks.create_task(check_a_killed_gateway(folder, workers))


async def check_a_killed_gateway(folder: Path, workers: int) -> None:
    async with upstream() as a, upstream() as b:
        file = configuration(a, b, workers)
        async with gateway(folder, file) as g:
            app = App(g, await g.key(), {"a": 0.5, "b": 0.5})
            await begun(g, app)
            await app.serve(100)
            async with aiohttp.ClientSession() as http:
                id, arm = await app.ask(http)
            g.process.kill()
            await g.process.wait()
        async with gateway(folder, file) as g:
            again = App(g, await g.key(), {"a": 0.5, "b": 0.5})
            await begun(g, again)
            async with aiohttp.ClientSession() as http:
                assert (await again.report(http, id=id, metric="solved", value=True))[0] == 200
            await again.serve(100)
            reported = {each: app.reported[each] + again.reported[each] + (each == arm) for each in ("a", "b")}
            view = await counted(g, sum(reported.values()))
            assert [each["samples"] for each in view["metrics"]["solved"]["arms"]] == [reported["a"], reported["b"]]


async def test_two_gateways_share_an_experiment(tmp_path: Path) -> None:
    """An id of one gateway is valid at the other, and a value that both get counts once."""
    async with upstream() as a, upstream() as b:
        file = {**configuration(a, b), "state": {"database": f"sqlite:///{tmp_path}/shared.db"}}
        folders = [tmp_path / name for name in ("one", "two")]
        for folder in folders:
            folder.mkdir()
        async with gateway(folders[0], file) as one, gateway(folders[1], file) as two:
            key = await one.key()
            apps = [App(g, key, {"a": 0.5, "b": 0.5}) for g in (one, two)]
            async with asyncio.timeout(60):
                while not await two._accepts(key):
                    await asyncio.sleep(0.05)
            for g, app in zip((one, two), apps, strict=True):
                await begun(g, app)
            reported = 0
            async with aiohttp.ClientSession() as http:
                for i in range(40):
                    id, _ = await apps[i % 2].ask(http)
                    for app in apps:
                        assert (await app.report(http, id=id, metric="solved", value=True))[0] == 200
                    reported += 1
            for g in (one, two):
                view = await counted(g, reported)
                assert sum(each["samples"] for each in view["metrics"]["solved"]["arms"]) == reported


async def test_an_arm_that_fails_is_stopped(tmp_path: Path) -> None:
    """A fallback answers its failures, so that no client notices. The control remains, and wins."""
    async with upstream() as a, upstream() as b:
        file = configuration(a, b, then="winner", guards=[{"metric": "failures", "above": "1.2x"}])
        file["models"][0]["routes"][0]["fallback"] = ["a"]
        b.behaviour = failing(0.3)
        async with gateway(tmp_path, file) as g:
            app = App(g, await g.key(), {})
            async with aiohttp.ClientSession() as http, asyncio.timeout(100):
                while (view := await admin(g))["status"] != "decided":
                    await asyncio.gather(*(app.ask(http) for _ in range(20)))
                assert (view["winner"], view["arms"][1]["stopped_by"]) == ("a", "failures")
                while {(await app.ask(http))[1] for _ in range(10)} != {"a"}:
                    await asyncio.sleep(0.05)


async def test_thompson_sampling_gives_the_better_arm_more_requests(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"decide": "thompson", "every": "1s", "floor": "10%", "alpha": "0.01%"}
    async with upstream() as a, upstream() as b, gateway(tmp_path, configuration(a, b, **settings)) as g:
        app = App(g, await g.key(), {"a": 0.3, "b": 0.6})
        await begun(g, app)
        async with asyncio.timeout(100):
            while (view := await admin(g))["arms"][1]["share"] < 0.8 and view["status"] == "running":
                await app.serve(40)
        assert min(arm["share"] for arm in view["arms"]) >= 0.1
        assert view["sample_ratio"]["e_value"] < 1000


async def test_operators_pause_continue_and_stop(tmp_path: Path) -> None:
    async with upstream() as a, upstream() as b, gateway(tmp_path, configuration(a, b)) as g:
        app = App(g, await g.key(), {})
        await begun(g, app)
        config = ("--config", str(g.config))
        assert (await command("experiment", "pause", "tone", *config))[0] == 0
        await until(g, status="held", reason="paused")
        assert (await command("experiment", "on", "tone", *config))[0] == 0
        await until(g, status="running")
        async with aiohttp.ClientSession() as http, asyncio.timeout(60):
            async with http.post(f"{g.admin}/admin/experiments/tone/stop", json={}) as response:
                assert (response.status, (await response.json())["status"]) == (200, "stopped")
            async with http.post(f"{g.admin}/admin/experiments/tone/stop", json={}) as response:
                assert (response.status, (await response.json())["error"]["code"]) == (409, "order_refused")
            async with http.get(f"{g.admin}/admin/experiments/none") as response:
                assert response.status == 404
            async with http.get(f"{g.admin}/metrics") as response:
                metrics = await response.text()
            assert 'headrace_experiment_status{experiment="tone",status="stopped"} 1.0' in metrics
            assert "headrace_feedback_values_total" in metrics
            while {(await app.ask(http))[1] for _ in range(10)} != {"a"}:
                await asyncio.sleep(0.05)
        status, _, error = await command("experiment", "stop", "other", *config)
        assert (status, "no experiment 'other'" in error) == (1, True)
        status, _, error = await command("rollout", "back", "tone", *config)
        assert (status, "no rollout 'tone'" in error) == (1, True)


async def test_a_baseline_narrows_the_interval(tmp_path: Path) -> None:
    """Users differ far more than the arms do. Their values of the baseline, in which the control has all requests,
    predict their later ones (CUPED). Another experiment with the same users and values has no baseline."""
    settings: dict[str, Any] = {"metric": "stars", "sticky": "user", "warmup": "0s"}
    users = {f"user-{number}": 1 + 4 * (number % 2) for number in range(60)}
    async with upstream() as a, upstream() as b:
        file = configuration(a, b, baseline="6s", **settings)
        other = {"name": "plain", "arms": ["a", "b"], **settings}
        file["models"].append({"name": "plain", "routes": [{"experiment": other}]})
        async with gateway(tmp_path, file) as g, aiohttp.ClientSession() as http:
            key = await g.key()
            headers = {"authorization": f"Bearer {key}"}
            app = App(g, key, {})

            async def rated(model: str, user: str) -> tuple[str, int]:
                url, body = f"{g.url}/v1/chat/completions", {**BODY, "model": model, "user": user}
                async with http.post(url, json=body, headers=headers) as response:
                    id, arm = response.headers["x-request-id"], response.headers["x-headrace-arm"]
                return arm, (await app.report(http, id=id, metric="stars", value=users[user]))[0]

            async def reported(model: str, name: str) -> dict[str, Any]:
                """The metric when every user has a value."""
                view: dict[str, Any] = {}
                while sum(arm["samples"] for arm in view.get("arms", ())) < len(users):
                    await asyncio.gather(*(rated(model, user) for user in users))
                    async with http.get(f"{g.admin}/admin/experiments/{name}") as response:
                        view = (await response.json())["metrics"]["stars"]
                return view

            async with asyncio.timeout(300):
                while (await rated("chat", "user-0"))[1] != 200:
                    await asyncio.sleep(0.05)
                assert [await rated("chat", user) for user in users] == [("a", 200)] * len(users)
                while {(await rated("chat", user))[0] for user in users} != {"a", "b"}:
                    await asyncio.sleep(0.2)
                narrow, wide = await reported("chat", "tone"), await reported("plain", "plain")
    assert narrow["theta"] == pytest.approx(1, abs=0.1)
    assert wide["theta"] is None
    widths = [view["arms"][1]["interval"][1] - view["arms"][1]["interval"][0] for view in (narrow, wide)]
    assert widths[0] < 0.7 * widths[1]
