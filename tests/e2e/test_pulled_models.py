"""Models that the gateway's runtime pulls from a web server: served, replaced under load, and served without it."""

import asyncio
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.support.processes import GatewayProcess, gateway
from tests.support.stores import tar_of, web_server

pytestmark = pytest.mark.timeout(900)
MODEL = """\
class Model:
    def infer(self, inputs):
        return {{"y": inputs["x"] * {factor}}}
"""
YAML = """\
backend: python
inputs: [{name: x, datatype: FP32, dims: [2]}]
outputs: [{name: y, datatype: FP32, dims: [2]}]
"""
BODY = {"inputs": [{"name": "x", "datatype": "FP32", "shape": [2], "data": [1, 2]}]}


def archive(factor: int) -> bytes:
    return tar_of({"model.yaml": YAML.encode(), "1/model.py": MODEL.format(factor=factor).encode()})


def configuration(repository: str) -> dict[str, Any]:
    runtime = {"kind": "tensor", "repository": repository, "mode": "poll", "poll_interval": "200ms"}
    return {
        "pools": [{"name": "models", "runtime": runtime}],
        "models": [{"name": "wine", "routes": [{"to": "models"}]}],
        "tenants": [{"name": "acme", "models": ["*"]}],
    }


async def infer(g: GatewayProcess, key: str) -> list[float]:
    async with (
        aiohttp.ClientSession(headers={"authorization": f"Bearer {key}"}) as http,
        http.post(f"{g.url}/v2/models/wine/infer", json=BODY) as response,
    ):
        answer = await response.json()
        assert response.status == 200, answer
        return list(answer["outputs"][0]["data"])


async def test_a_pulled_model_answers_and_is_replaced_without_a_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADRACE_CACHE", str(tmp_path / "cache"))
    async with web_server() as server:
        server.files = {"/wine.tar.gz": archive(2)}
        file = configuration(f"{server.url}/wine.tar.gz")
        async with gateway(tmp_path, file) as g:
            await g.printed("Ready.")
            key = await g.key()
            assert await infer(g, key) == [2.0, 4.0]
            server.files = {"/wine.tar.gz": archive(3)}
            async with asyncio.timeout(300):
                while (answer := await infer(g, key)) != [3.0, 6.0]:
                    assert answer == [2.0, 4.0]
        server.files = {}
        async with gateway(tmp_path, file) as g:  # the revision of the last run
            await g.printed("Ready.")
            assert await infer(g, key) == [3.0, 6.0]
