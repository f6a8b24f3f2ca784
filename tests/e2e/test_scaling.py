"""Replicas that follow the demand, and models that start for their first request: real processes and runtimes."""

import asyncio
import json
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import aiohttp
import psutil
import pytest
import yaml

from tests.e2e.test_programs import KEY, MORTAL, answered, configuration
from tests.e2e.test_replicas import mortal, rewrite
from tests.support.processes import GatewayProcess, gateway
from tests.support.traffic import traffic

pytestmark = pytest.mark.timeout(1800)
MIB = 1024**2
HELD = 600
"""Requests that wait for a cold model."""


def pool(state: dict[str, Any]) -> dict[str, Any]:
    [described] = state["replicas"]
    return dict(described)


async def metric(g: GatewayProcess, line: str) -> bool:
    async with aiohttp.ClientSession() as http, http.get(f"{g.admin}/metrics") as response:
        return line in await response.text()


@pytest.mark.parametrize("workers", [1, 2])
async def test_replicas_grow_with_the_demand_and_drain_after_it(tmp_path: Path, workers: int) -> None:
    replicas = {"min": 0, "max": 3, "places": 2, "idle": "3s", "cpus": 1}
    async with gateway(tmp_path, configuration(mortal(replicas=replicas), workers=workers)) as g:
        key = (await g.printed(KEY))[1]
        await answered(g, key)
        async with traffic(g.url, key, clients=12) as load:
            state = await g.until("s['replicas'][0]['ready'] == 3")
            assert "a replica" in pool(state)["reason"]
            assert await metric(g, 'headrace_replicas{pool="theirs",state="ready"} 3.0')
            await load.until_answered(50, 300)
        assert load.dropped == []
        assert load.statuses == {200: load.sent}
        await g.until("s['replicas'][0]['replicas'] == 0 and s['endpoints'] == []")
        async with asyncio.timeout(300):
            while any(MORTAL[-1] in process.cmdline() for process in _processes(g)):
                await asyncio.sleep(0.1)
        assert (await answered(g, key))["model"] == "chat"


def _processes(g: GatewayProcess) -> list[psutil.Process]:
    return [p for p in psutil.Process(g.process.pid).children(recursive=True) if p.status() != psutil.STATUS_ZOMBIE]


@pytest.mark.parametrize("workers", [1, 2])
async def test_a_cold_model_starts_for_a_request_and_stops_when_it_is_idle(tmp_path: Path, workers: int) -> None:
    replicas = {"min": 0, "max": 1, "idle": "3s", "warm_up": True}
    async with gateway(tmp_path, configuration(mortal(replicas=replicas), workers=workers)) as g:
        key = (await g.printed(KEY))[1]  # the gateway is ready, although nothing runs
        state = await g.state()
        assert (state["endpoints"], pool(state)["replicas"]) == ([], 0)
        assert (await one(g, key))[0] == 200
        state = await g.until("s['replicas'][0]['replicas'] == 0 and s['endpoints'] == []")
        assert pool(state)["start_seconds"] > 0
        assert "no request for 3 s" in pool(state)["reason"]
        assert (await one(g, key))[0] == 200


async def test_a_cold_model_that_cannot_start_answers_with_the_reason(tmp_path: Path) -> None:
    command = ["/bin/sh", "-c", "exit 3", "{port}"]
    async with gateway(tmp_path, configuration(mortal(command=command, replicas={"min": 0, "max": 1}))) as g:
        key = (await g.printed(KEY))[1]
        for _ in range(2):
            status, body, headers = await one(g, key)
            assert (status, body["error"]["code"]) == (503, "model_start_failed")
            assert "replica 0 ended with status 3" in body["error"]["message"]
            assert int(headers["retry-after"]) >= 1
        assert pool(await g.state())["failure"] == "replica 0 ended with status 3"


async def test_a_reload_to_and_from_zero_loses_no_request(tmp_path: Path) -> None:
    async with gateway(tmp_path, configuration(mortal(replicas=1))) as g:
        key = (await g.printed(KEY))[1]
        await answered(g, key)
        async with traffic(g.url, key, clients=4) as load:
            for replicas in ({"min": 0, "max": 2, "idle": "1s"}, {"min": 2}, {"min": 0, "max": 1}):
                rewrite(g, mortal(replicas={**replicas, "cpus": 1}))
                await g.printed("configuration reloaded")
                g.output = ""
                await load.until_answered(40, 300)
        assert load.dropped == []
        assert load.statuses == {200: load.sent}


async def one(g: GatewayProcess, key: str, **fields: Any) -> tuple[int, dict[str, Any], dict[str, str]]:
    body = {"model": "chat", "messages": [{"role": "user", "content": "w"}], **fields}
    async with aiohttp.ClientSession() as http:
        return await sent(http, f"{g.url}/v1/chat/completions", key, body)


async def sent(
    http: aiohttp.ClientSession, url: str, key: str, body: dict[str, Any]
) -> tuple[int, dict[str, Any], dict[str, str]]:
    headers = {"authorization": f"Bearer {key}"}
    async with http.post(url, json=body, headers=headers) as response:
        return response.status, await response.json(), {name.lower(): v for name, v in response.headers.items()}


async def burst(
    g: GatewayProcess, key: str, path: str, bodies: Sequence[dict[str, Any]], begin: Callable[[], None] | None
) -> list[tuple[int, dict[str, Any], dict[str, str]]]:
    """Send all at once, each over a connection of its own. `begin` is called when those beyond `HELD` are refused."""
    timeout = aiohttp.ClientTimeout(total=1200)
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), timeout=timeout) as http:
        replies = []
        for reply in asyncio.as_completed([sent(http, f"{g.url}{path}", key, body) for body in bodies]):
            replies.append(await reply)
            if begin is not None and len(replies) == len(bodies) - HELD:
                begin()
        return replies


def memory(g: GatewayProcess) -> int:
    return int(psutil.Process(g.process.pid).memory_info().rss)


async def check_burst(
    g: GatewayProcess, key: str, path: str, body: dict[str, Any], begin: Callable[[], None] | None = None
) -> None:
    """1,000 requests at once at a cold model: each is answered, or refused with a measured time."""
    before = memory(g)
    replies = await burst(g, key, path, [body] * 1000, begin)
    statuses = Counter(status for status, _, _ in replies)
    assert statuses.total() == 1000
    assert statuses.keys() <= {200, 503}, [reply for reply in replies if reply[0] not in (200, 503)][:3]
    refusals = Counter(json.dumps(answer) for status, answer, _ in replies if status == 503)
    assert statuses[200] >= HELD - 10, f"requests that may wait are refused: {refusals}"
    for status, answer, headers in replies:
        if status == 503:
            assert int(headers["retry-after"]) >= 1
            assert "model_starting" in json.dumps(answer) or "starting" in json.dumps(answer), answer
    assert memory(g) - before < 200 * MIB
    await g.until_idle()


async def test_a_thousand_requests_at_a_cold_bundled_llm(tmp_path: Path) -> None:
    runtime = {
        "kind": "llm", "model": "bundled:smollm2-135m-instruct", "max_model_len": 256,
        "replicas": {"min": 0, "max": 1, "max_held": HELD},
    }  # fmt: skip
    written = configuration(runtime)
    written["models"][0]["routes"][0]["timeout"] = {"total": "15m"}
    async with gateway(tmp_path, written) as g:
        key = (await g.printed(KEY))[1]
        body = {"model": "chat", "messages": [{"role": "user", "content": "w"}], "max_tokens": 1}
        await check_burst(g, key, "/v1/chat/completions", body)


async def test_a_thousand_requests_at_a_cold_tensor_model(tmp_path: Path) -> None:
    repository = tmp_path / "models"
    version = repository / "double" / "1"
    version.mkdir(parents=True)
    begin = tmp_path / "begin"  # on a busy machine the model would start while requests still arrive
    (version / "model.py").write_text(
        "import pathlib, time\n\n"
        f"while not pathlib.Path({str(begin)!r}).exists():\n    time.sleep(0.05)\n\n"
        "class Model:\n    def infer(self, inputs):\n        return {'y': inputs['x'] * 2}\n"
    )
    tensors = {"inputs": [{"name": "x", "datatype": "FP32", "dims": [-1]}]}
    tensors["outputs"] = [{"name": "y", "datatype": "FP32", "dims": [-1]}]
    (version.parent / "model.yaml").write_text(yaml.safe_dump({"backend": "python", **tensors}))
    runtime = {"kind": "tensor", "repository": str(repository), "replicas": {"min": 0, "max": 1, "max_held": HELD}}
    written = configuration(runtime)
    written["models"] = [{"name": "double", "routes": [{"to": "theirs", "timeout": {"total": "15m"}}]}]
    async with gateway(tmp_path, written) as g:
        key = (await g.printed(KEY))[1]
        body = {"inputs": [{"name": "x", "datatype": "FP32", "shape": [2], "data": [1.0, 2.0]}]}
        await check_burst(g, key, "/v2/models/double/infer", body, begin.touch)
