"""Rollouts between two versions of one model in the bundled tensor runtime, over real processes."""

import asyncio
import shutil
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.e2e.test_rollouts import shown
from tests.servers.repositories import for_headrace
from tests.support.processes import GatewayProcess, gateway

pytestmark = pytest.mark.timeout(1800)
CLIENTS = 8
HEALTHY = "        pass\n"
FAILING = "        if int(inputs['INPUT0'].flat[0]) % 20 == 0:\n            raise RuntimeError('version 2 fails')\n"
"""5 % of the requests, by their first number."""
SLOW = "        time.sleep(0.06)\n"
VERSION = """\
import time


class Model:
    def infer(self, inputs):
{body}        time.sleep(0.02)
        one, other = inputs["INPUT0"], inputs["INPUT1"]
        return {{"OUTPUT0": one + other, "OUTPUT1": one - other}}
"""


def repository(folder: Path, second: str) -> Path:
    """`add_sub` in two versions, of which the second has another body."""
    made = for_headrace(folder, ["add_sub"])
    model = made / "add_sub"
    settings = (model / "config.pbtxt").read_text()
    (model / "config.pbtxt").write_text(settings + "\nversion_policy { all {} }\n")
    shutil.rmtree(model / "1")
    for version, body in (("1", HEALTHY), ("2", second)):
        (model / version).mkdir()
        (model / version / "model.py").write_text(VERSION.format(body=body))
    return made


def configuration(models: Path, steps: list[dict[str, str]]) -> dict[str, Any]:
    rollout = {
        "name": "r",
        "from": {"pool": "models", "version": "1"},
        "to": {"pool": "models", "version": "2"},
        "steps": steps,
        "warmup": "200ms",
        "requests": 30,
        "back_if": [{"metric": "failures"}, {"metric": "total", "slower_than": "50ms", "above": "1.3x"}],
    }
    return {
        "pools": [{"name": "models", "runtime": {"kind": "tensor", "repository": str(models)}}],
        "models": [{"name": "add_sub", "routes": [{"rollout": rollout, "retry": {"attempts": 1}}]}],
        "tenants": [{"name": "acme", "models": ["*"]}],
    }


async def until(g: GatewayProcess, key: str, status: str) -> tuple[dict[str, Any], dict[int, int]]:
    """Infer until the rollout has a status. Returns the rollout, and the statuses of the clients' responses."""
    statuses: dict[int, int] = {}
    stopped = False
    numbers = iter(range(10**9))

    async def infer(http: aiohttp.ClientSession) -> None:
        while not stopped:
            data = [next(numbers)] * 16
            inputs = [{"name": f"INPUT{i}", "shape": [1, 16], "datatype": "INT32", "data": data} for i in (0, 1)]
            async with http.post(f"{g.url}/v2/models/add_sub/infer", json={"inputs": inputs}) as response:
                await response.read()
                statuses[response.status] = statuses.get(response.status, 0) + 1

    async with (
        aiohttp.ClientSession(headers={"authorization": f"Bearer {key}"}) as http,
        asyncio.TaskGroup() as clients,
    ):
        for _ in range(CLIENTS):
            clients.create_task(infer(http))
        try:
            async with asyncio.timeout(300):
                while (view := await shown(g))["status"] != status:
                    await asyncio.sleep(0.05)
        finally:
            stopped = True
    return view, statuses


async def test_a_healthy_version_gets_all_requests_by_itself(tmp_path: Path) -> None:
    steps = [{"weight": "20%", "for": "2s"}, {"weight": "50%", "for": "2s"}]
    file = configuration(repository(tmp_path / "models", HEALTHY), steps)
    file["models"][0]["routes"][0]["rollout"]["back_if"] = [{"metric": "failures"}]
    async with gateway(tmp_path, file) as g:
        await g.printed("Ready.")
        view, statuses = await until(g, await g.key(), "done")
        assert (view["weight"], view["from"], view["to"]) == (1.0, "models:1", "models:2")
        assert statuses.keys() == {200}


@pytest.mark.parametrize(("body", "reason"), [(FAILING, "failures"), (SLOW, "total>50ms")])
async def test_a_worse_version_is_taken_back_by_itself(tmp_path: Path, body: str, reason: str) -> None:
    """5 % of its inferences fail, or it takes three times as long. Only its own failures reach clients."""
    models = repository(tmp_path / "models", body)
    file = configuration(models, [{"weight": "50%", "for": "10m"}])
    if reason == "failures":
        file["models"][0]["routes"][0]["rollout"]["back_if"] = [{"metric": "failures"}]
    async with gateway(tmp_path, file) as g:
        await g.printed("Ready.")
        view, statuses = await until(g, await g.key(), "back")
        assert (view["reason"], view["weight"]) == (reason, 0.0)
        condition = next(each for each in view["back_if"] if each["event"] == reason)
        assert condition["e_value"] >= 100 * len(view["back_if"])
        failed = sum(count for status, count in statuses.items() if status != 200)
        assert failed == 0 if reason != "failures" else failed >= condition["events"]["to"]
