"""`keep` over real processes: after a blue-green move the old arm's runtime and versions stay loaded for `back`."""

import asyncio
from pathlib import Path
from typing import Any

import aiohttp
import psutil
import pytest

from tests.servers.repositories import for_headrace
from tests.support.processes import GatewayProcess, gateway

pytestmark = pytest.mark.timeout(1800)
REFUSED: dict[int, str] = {}
"""The last answer of 503, whose reason a failure shows."""
VERSION = """\
class Model:
    def infer(self, inputs):
        one, other = inputs["INPUT0"], inputs["INPUT1"]
        return {"OUTPUT0": one + other, "OUTPUT1": one - other}
"""


def configuration(models: Path, source: Any, to: Any, pools: list[str], **fields: Any) -> dict[str, Any]:
    steps = [{"weight": "100%", "for": "1s"}]
    rollout = {"name": "r", "from": source, "to": to, "steps": steps, "warmup": "0s", "requests": 5}
    return {
        "pools": [
            {"name": name, "runtime": {"kind": "tensor", "repository": str(models), **fields.pop("runtime", {})}}
            for name in pools
        ],
        "models": [{"name": "add_sub", "routes": [{"rollout": {**rollout, **fields.pop("rollout", {})}}]}],
        "tenants": [{"name": "acme", "models": ["*"]}],
        **fields,
    }


async def reload(g: GatewayProcess, **sections: Any) -> None:
    before = g.output.count("configuration reloaded")
    g.rewrite(**sections)
    async with asyncio.timeout(300):
        while g.output.count("configuration reloaded") == before:
            await asyncio.sleep(0.02)


async def shown(g: GatewayProcess) -> dict[str, Any]:
    return dict((await g.administer("GET", "/admin/rollouts/r"))[1])


async def ordered_back(g: GatewayProcess) -> tuple[int, str]:
    """The HTTP status, and the status of the rollout."""
    status, body = await g.administer("POST", "/admin/rollouts/r/back", {})
    return status, body.get("status", "")


async def done(g: GatewayProcess, key: str) -> None:
    """Infer until the rollout has ended, once the runtime of its new arm serves too: `Ready.` waits for one arm."""
    await g.until("all(e['health'] == 'healthy' for e in s['endpoints'])")
    async with asyncio.timeout(300):
        while (await shown(g))["status"] != "done":
            statuses = {status for status, _ in await asyncio.gather(*(infer(g, key) for _ in range(8)))}
            assert statuses == {200}, REFUSED


async def until_answer(g: GatewayProcess, key: str, expected: tuple[int, str], version: str = "") -> None:
    async with asyncio.timeout(300):
        while await infer(g, key, version) != expected:
            await asyncio.sleep(0.02)


async def pid_of(g: GatewayProcess, pool: str) -> int:
    state = await g.until(f"any(e['pool'] == '{pool}' and e.get('pid') for e in s['endpoints'])")
    return next(int(e["pid"]) for e in state["endpoints"] if e["pool"] == pool)


async def infer(g: GatewayProcess, key: str, version: str = "") -> tuple[int, str]:
    data = [{"name": f"INPUT{i}", "shape": [1, 16], "datatype": "INT32", "data": [1] * 16} for i in (0, 1)]
    path = f"{g.url}/v2/models/add_sub{'/versions/' + version if version else ''}/infer"
    headers = {"authorization": f"Bearer {key}"}
    async with aiohttp.ClientSession() as http, http.post(path, json={"inputs": data}, headers=headers) as response:
        body = await response.text()
        if response.status == 503:
            REFUSED[503] = body
        return response.status, response.headers.get("x-headrace-arm", "")


async def test_the_runtime_of_the_old_arm_stays_until_keep_has_passed(tmp_path: Path) -> None:
    """Also if the file no longer has the rollout and its pool: with the file of before, `back` is at once."""
    models = for_headrace(tmp_path / "models", ["add_sub"])
    before = configuration(models, "blue", "green", ["blue", "green"], workers=2)
    after = {"pools": before["pools"][1:], "models": [{"name": "add_sub", "routes": [{"to": "green"}]}]}
    async with gateway(tmp_path, before) as g:
        await g.printed("Ready.")
        key = await g.key()
        blue = await pid_of(g, "blue")
        await done(g, key)
        assert await infer(g, key) == (200, "green")
        await reload(g, **after)
        assert (await infer(g, key))[0] == 200
        await asyncio.sleep(1.0)  # time for a stop that must not happen
        assert psutil.pid_exists(blue)
        await reload(g, pools=before["pools"], models=before["models"])
        assert await infer(g, key) == (200, "green")
        async with asyncio.timeout(300):
            while (await shown(g))["status"] != "done":
                await asyncio.sleep(0.02)
        assert await pid_of(g, "blue") == blue
        assert await ordered_back(g) == (200, "back")
        await until_answer(g, key, (200, "blue"))
        assert await pid_of(g, "blue") == blue
        await reload(g, pools=before["pools"][:1], models=[{"name": "add_sub", "routes": [{"to": "blue"}]}])
        assert (await infer(g, key))[0] == 200


async def test_after_keep_the_old_runtime_ends(tmp_path: Path) -> None:
    models = for_headrace(tmp_path / "models", ["add_sub"])
    before = configuration(models, "blue", "green", ["blue", "green"], rollout={"keep": "1s"})
    async with gateway(tmp_path, before) as g:
        await g.printed("Ready.")
        key = await g.key()
        blue = await pid_of(g, "blue")
        await done(g, key)
        async with asyncio.timeout(300):
            while (view := await shown(g))["reason"] != "keep ended":
                await asyncio.sleep(0.05)
        assert view["back_for_seconds"] == 0
        assert (await ordered_back(g))[0] == 409
        assert psutil.pid_exists(blue)  # the file has it
        await reload(g, pools=before["pools"][1:], models=[{"name": "add_sub", "routes": [{"to": "green"}]}])
        async with asyncio.timeout(300):
            while psutil.pid_exists(blue):
                await asyncio.sleep(0.05)
        assert (await infer(g, key))[0] == 200


async def test_the_old_version_stays_loaded_beside_its_successor(tmp_path: Path) -> None:
    """The repository serves the latest version only. Version 1 is retained from the begin of the rollout on."""
    models = for_headrace(tmp_path / "models", ["add_sub"])
    folder = models / "add_sub"
    (folder / "1" / "model.py").write_text(VERSION)
    source, to = ({"pool": "models", "version": version} for version in "12")
    polled = {"mode": "poll", "poll_interval": "200ms"}
    first = [{"weight": "0.1%", "for": "1h"}]
    file = configuration(models, source, to, ["models"], runtime=polled, rollout={"steps": first})
    async with gateway(tmp_path, file) as g:
        await g.printed("Ready.")
        key = await g.key()
        async with asyncio.timeout(300):
            while (await shown(g))["status"] == "not begun":
                await asyncio.sleep(0.05)
        await g.printed("retains add_sub version 1")
        (folder / "2").mkdir()
        (folder / "2" / "model.py").write_text(VERSION)
        async with asyncio.timeout(300):
            while (await infer(g, key, "2"))[0] != 200:
                await asyncio.sleep(0.05)
        answers = {await infer(g, key) for _ in range(5)}
        assert answers <= {(200, "models:1"), (200, "models:2")}, (answers, REFUSED)
        await reload(g, models=configuration(models, source, to, ["models"])["models"])
        await done(g, key)
        assert await infer(g, key) == (200, "models:2")
        status, refused = await g.administer("POST", "/v2/repository/models/add_sub/unload", {})
        assert (status, refused["error"]["code"]) == (409, "needed_for_rollback")
        assert await ordered_back(g) == (200, "back")
        await until_answer(g, key, (200, "models:1"))
