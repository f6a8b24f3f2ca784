"""BentoML, KServe and MLServer behind one gateway, under one key, for clients that know none of them."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc.aio as over_grpc
import tritonclient.http.aio as over_http

from tests.servers.bentoml import bentoml
from tests.servers.kserve import install as kserve_environment
from tests.servers.kserve import kserve
from tests.servers.mlserver import install as mlserver_environment
from tests.servers.mlserver import mlserver
from tests.servers.programs import __path__ as programs
from tests.servers.shared import shared
from tests.servers.started import Started
from tests.support.processes import GatewayProcess, gateway

pytestmark = [pytest.mark.servers, pytest.mark.timeout(1800)]  # the first run installs them

RAMP = np.arange(16, dtype=np.int32).reshape(1, 16)
POOLS = ("bento", "kserve", "kserve-grpc", "kserve-first", "mlserver", "mlserver-grpc")


@pytest.fixture(scope="module")
def servers() -> dict[str, Started]:
    return {"bento": shared(bentoml), "kserve": shared(kserve), "mlserver": shared(mlserver)}


def described(kind: str) -> list[dict[str, Any]]:
    return [{"name": f"{kind}{i}", "datatype": "INT32", "shape": [-1, 16]} for i in (0, 1)]


def configuration(servers: dict[str, Started]) -> dict[str, Any]:
    """The same model in six pools, a gateway's model for each, and a model that is split over all of them."""
    first = {"name": "kserve-v1", "inputs": described("INPUT"), "outputs": described("OUTPUT")}
    spoken: dict[str, tuple[Any, str]] = {
        "bento": ("bentoml", servers["bento"].url()),
        "kserve": ({"name": "oip-http", "server": "kserve"}, servers["kserve"].url(0)),
        "kserve-grpc": ({"name": "oip-grpc", "server": "kserve"}, servers["kserve"].url(1)),
        "kserve-first": (first, servers["kserve"].url(0)),
        "mlserver": ({"name": "oip-http", "server": "mlserver"}, servers["mlserver"].url(0)),
        "mlserver-grpc": ({"name": "oip-grpc", "server": "mlserver"}, servers["mlserver"].url(1)),
    }
    pools = [
        {"name": name, "protocol": protocol, "endpoints": [url], "model": "add_sub"}
        for name, (protocol, url) in spoken.items()
    ]
    bare = [
        {"name": "zoo", "protocol": "bentoml", "endpoints": [servers["bento"].url()]},
        {
            "name": "texts",
            "protocol": {"name": "oip-http", "server": "mlserver"},
            "endpoints": [servers["mlserver"].url()],
        },
    ]
    split = [{"pool": name, "weight": 1} for name in POOLS]
    return {
        "listen": {"http": "127.0.0.1:0", "grpc": "127.0.0.1:0", "admin": "127.0.0.1:0"},
        "pools": [*pools, *bare],
        "models": [
            *({"name": name, "routes": [{"to": name}]} for name in POOLS),
            {"name": "everywhere", "routes": [{"split": {"arms": split}}]},
            {"name": "count", "routes": [{"to": "zoo"}]},
            *({"name": name, "routes": [{"to": "texts"}]} for name in ("words", "frame", "iris")),
        ],
        "tenants": [{"name": "acme", "models": ["*"], "limits": {"rows": "1000/d"}}],
    }


class Setting:
    def __init__(self, process: GatewayProcess, key: str) -> None:
        self.process = process
        self.key = key
        self.headers = {"authorization": f"Bearer {key}"}


@pytest.fixture
async def running(tmp_path: Path, servers: dict[str, Started]) -> AsyncIterator[Setting]:
    async with gateway(tmp_path, configuration(servers)) as made:
        await made.until("all(e['health'] == 'healthy' for e in s['endpoints'])")
        yield Setting(made, await made.key())
        await made.until_idle()


def given(client: Any) -> list[Any]:
    inputs = [client.InferInput(name, [1, 16], "INT32") for name in ("INPUT0", "INPUT1")]
    for one in inputs:
        one.set_data_from_numpy(RAMP)
    return inputs


async def test_tritons_clients_reach_every_server(running: Setting) -> None:
    url = running.process.url.removeprefix("http://")
    async with (
        over_http.InferenceServerClient(url, conn_timeout=60) as http,
        over_grpc.InferenceServerClient(running.process.grpc) as grpc,
    ):
        for name in [*POOLS, *["everywhere"] * 12]:
            for client, module in ((http, over_http), (grpc, over_grpc)):
                response = await client.infer(name, given(module), headers=dict(running.headers), request_id="r")
                assert (response.as_numpy("OUTPUT0") == RAMP * 2).all(), name
                assert (response.as_numpy("OUTPUT1") == 0).all(), name
        for name in POOLS:
            metadata = await http.get_model_metadata(name, headers=running.headers)
            assert {one["name"]: one["shape"] for one in metadata["inputs"]} == {"INPUT0": [-1, 16], "INPUT1": [-1, 16]}


async def test_kserves_own_clients_work_unchanged(running: Setting) -> None:
    program = str(Path(programs[0]) / "kserve_client.py")
    python = str(kserve_environment() / "bin/python")
    names = [*POOLS, "--", "kserve-first", "bento", "mlserver"]
    process = await asyncio.create_subprocess_exec(
        python, program, running.process.url, running.process.grpc, running.key, *names,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    async with asyncio.timeout(300):
        output = (await process.communicate())[0].decode()
    assert process.returncode == 0, output
    assert output.count("v2 ") == output.count("grpc ") == len(POOLS)
    assert "explained kserve-first" in output


async def test_mlservers_codecs_work_unchanged(running: Setting) -> None:
    """Also before servers that have none."""
    python, program = str(mlserver_environment() / "bin/python"), str(Path(programs[0]) / "mlserver_client.py")
    process = await asyncio.create_subprocess_exec(
        python, program, running.process.url, running.key,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip
    async with asyncio.timeout(300):
        output = (await process.communicate())[0].decode()
    assert "all right" in output, output
