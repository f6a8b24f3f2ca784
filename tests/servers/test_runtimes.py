"""Real servers of other projects that the gateway starts: they restart after a kill, and end with the gateway."""

import asyncio
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import aiohttp
import psutil
import pytest

from loadtests.peers import vllm
from loadtests.venvs import InstallError
from runtimes.llm.weights.store import resolve
from tests.servers import mlserver
from tests.servers.llm import MODEL
from tests.servers.programs import __path__ as programs
from tests.support.absent import absent
from tests.support.processes import GatewayProcess, gateway

PATIENCE = 300.0
READY_SECONDS = 900.0
KEY = r"Demo key [^:]*: (hr-\S+)"


def installed(install: Callable[[], Path]) -> Path:
    try:
        return install()
    except InstallError as error:
        absent(error)


def pool(runtime: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {
        "auth": {"demo_key": True},
        "pools": [{"name": "theirs", "runtime": {"start_timeout": "15m", **runtime}, **more}],
        "models": [{"name": "*", "routes": [{"to": "theirs", "timeout": {"first_byte": "5m", "total": "9m"}}]}],
        "tenants": [{"name": "acme", "models": ["*"]}],
    }


async def post(g: GatewayProcess, key: str, path: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    headers = {"authorization": f"Bearer {key}"}
    async with aiohttp.ClientSession() as http, http.post(f"{g.url}{path}", json=body, headers=headers) as response:
        return response.status, await response.json()


async def ready(g: GatewayProcess) -> list[psutil.Process]:
    """The server's processes, when it is well."""
    state = await g.until("s['endpoints'][0]['health'] == 'healthy'", seconds=READY_SECONDS)
    return psutil.Process(state["endpoints"][0]["pid"]).children(recursive=True)


async def gone(g: GatewayProcess, processes: list[psutil.Process]) -> None:
    assert await g.stop() == 0
    _, alive = await asyncio.to_thread(psutil.wait_procs, processes, PATIENCE)
    assert alive == []


async def test_an_mlserver_by_its_command(tmp_path: Path) -> None:
    venv = installed(mlserver.install)
    shutil.copy(Path(programs[0]) / "mlserver_models.py", tmp_path / "models.py")
    (tmp_path / "words").mkdir()
    (tmp_path / "words/model-settings.json").write_text(json.dumps({"name": "words", **mlserver.MODELS["words"]}))
    runtime = {
        "kind": "command",
        "command": [str(venv / "bin/mlserver"), "start", str(tmp_path)],
        "env": {
            "MLSERVER_HOST": "127.0.0.1",
            "MLSERVER_HTTP_PORT": "{port}",
            "MLSERVER_GRPC_PORT": "{port:grpc}",
            "MLSERVER_METRICS_PORT": "{port:metrics}",
            "MLSERVER_PARALLEL_WORKERS": 0,
            "PYTHONPATH": str(tmp_path),
        },
        "cwd": str(tmp_path),
    }
    body = {"inputs": [{"name": "text", "datatype": "BYTES", "shape": [1], "data": ["one two"]}]}
    async with gateway(tmp_path, pool(runtime, protocol={"name": "oip-http", "server": "mlserver"})) as g:
        key = (await g.printed(KEY, READY_SECONDS))[1]
        processes = await ready(g)
        before = await post(g, key, "/v2/models/words/infer", body)
        assert before[0] == 200, before
        processes[0].kill()
        await g.until("s['endpoints'][0]['restarts'] == 1")
        _, alive = await asyncio.to_thread(psutil.wait_procs, processes, PATIENCE)
        assert alive == []
        processes = await ready(g)
        after = await post(g, key, "/v2/models/words/infer", body)
        assert after[1]["outputs"] == before[1]["outputs"]
        await gone(g, processes)


CHAT = {
    "model": "smollm2",
    "messages": [{"role": "user", "content": "What is the capital of France?"}],
    "max_tokens": 12,
    "temperature": 0,
}


@pytest.mark.nightly
async def test_a_vllm(tmp_path: Path) -> None:
    venv = installed(vllm.install)
    folder = vllm.model(venv, resolve(MODEL))
    runtime = {
        "kind": "vllm",
        "model": str(folder),
        "venv": str(venv),
        "args": ["--dtype", "bfloat16", "--max-model-len", 1024, "--enforce-eager"],
        "env": {
            "VLLM_CPU_KVCACHE_SPACE": 1,
            "VLLM_CPU_OMP_THREADS_BIND": "0-1",
            "VLLM_TARGET_DEVICE": "cpu",
            "HF_HUB_OFFLINE": 1,
        },
    }
    async with gateway(tmp_path, pool(runtime)) as g:
        key = (await g.printed(KEY, READY_SECONDS))[1]
        processes = await ready(g)
        status, answer = await post(g, key, "/v1/chat/completions", {**CHAT, "model": "theirs"})
        assert status == 200
        assert answer["choices"][0]["message"]["content"]
        await gone(g, processes)
