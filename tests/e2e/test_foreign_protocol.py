"""A protocol of another package: that of docs/servers/adapter.md, installed beside Headrace and not in it."""

import json
import os
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from adapters.http1.message import Request, Response
from adapters.http1.server import Server
from tests.support.processes import command, gateway

pytestmark = pytest.mark.timeout(1800)

PAGE = Path("docs/servers/adapter.md")
JSON = [("content-type", "application/json")]


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Install a distribution as pip does: its module, its metadata, its entry points."""
    (code,) = [
        text for text in re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL) if "AbacusAdapter" in text
    ]
    (entry_points,) = re.findall(
        r'```toml\n\[project.entry-points."headrace.protocols"\]\n(.*?)```', PAGE.read_text(), re.S
    )
    site = tmp_path / "site"
    info = site / "abacus-1.0.dist-info"
    info.mkdir(parents=True)
    (site / "abacus.py").write_text(code)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: abacus\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[headrace.protocols]\n{entry_points.replace(chr(34), '')}")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(site), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]))
    return site


async def abacus(request: Request) -> Response:
    """The server that it is for."""
    if request.path == "/health":
        return Response(200)
    if request.path != "/sum":
        return Response(404, JSON, b'{"error":"no such model"}')
    numbers = json.loads(await request.read())["numbers"]
    return Response(200, JSON, json.dumps({"sum": sum(numbers)}).encode())


@asynccontextmanager
async def serving() -> AsyncIterator[str]:
    server = Server(abacus)
    host, port = await server.listen_tcp("127.0.0.1", 0)
    try:
        yield f"http://{host}:{port}"
    finally:
        await server.aclose()


def written(url: str, protocol: Any = "abacus") -> dict[str, Any]:
    return {
        "auth": {"demo_key": True},
        "pools": [{"name": "abacus", "protocol": protocol, "endpoints": [url]}],
        "models": [{"name": "sum", "routes": [{"to": "abacus"}]}],
        "tenants": [{"name": "demo", "models": ["*"]}],
    }


async def test_requests_reach_it_through_a_gateway(installed: Path, tmp_path: Path) -> None:
    async with serving() as url, gateway(tmp_path, written(url, {"name": "abacus", "largest": 3})) as g:
        key = await g.demo_key()
        headers = {"authorization": f"Bearer {key}"}
        await g.until("all(e['health'] == 'healthy' for e in s['endpoints'])")
        async with aiohttp.ClientSession(headers=headers) as http:

            async def infer(*numbers: float) -> tuple[int, Any]:
                tensor = {"name": "NUMBERS", "datatype": "FP64", "shape": [len(numbers)], "data": list(numbers)}
                async with http.post(f"{g.url}/v2/models/sum/infer", json={"inputs": [tensor]}) as response:
                    return response.status, await response.json()

            status, answer = await infer(1.5, 2)
            assert (status, answer["outputs"][0]["data"]) == (200, [3.5])
            status, answer = await infer(1, 2, 3, 4)
            assert (status, answer["error"]) == (400, "`NUMBERS` has more than 3 elements.")


async def test_check_knows_its_options(installed: Path, tmp_path: Path) -> None:
    path = tmp_path / "pool.yaml"
    path.write_text(json.dumps({"version": 1, **written("http://127.0.0.1:9")}))
    assert (await command("check", str(path)))[0] == 0
    path.write_text(json.dumps({"version": 1, **written("http://127.0.0.1:9", {"name": "abacus", "largst": 3})}))
    status, out, _ = await command("check", str(path))
    assert (status, "largst" in out) == (1, True), out
    path.write_text(json.dumps({"version": 1, **written("http://127.0.0.1:9", "abakus")}))
    status, out, _ = await command("check", str(path))
    assert (status, 'did you mean "abacus"' in out) == (1, True), out


async def test_the_conformance_suite_examines_it(installed: Path) -> None:
    async with serving() as url:
        status, out, error = await command("conformance", url, "--protocol", "abacus", "--model", "sum")
    assert (status, "17 features, none failed" in out) == (0, True), out + error
    lines = {line.split("│")[1].strip(): line.split("│")[2].strip() for line in out.splitlines() if line.count("│") > 2}
    assert lines["infer"] == lines["bad input"] == lines["credentials"] == "passed"
    assert lines["stream"] == "–"
