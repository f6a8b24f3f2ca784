"""NVIDIA's load generator runs every kind of load on our runtime."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.servers.headrace import EXPLICIT, Headrace, headrace
from tests.servers.perf_analyzer import run
from tests.servers.repositories import for_headrace
from tests.support.processes import gateway

WATCHDOG_MS = 1000
LOADS = {
    "JSON": ["-m", "add_sub", "-i", "http", "--input-tensor-format", "json", "--output-tensor-format", "json"],
    "binary, in batches": ["-m", "add_sub", "-i", "http", "-b", "8"],
    "shared memory over HTTP": ["-m", "add_sub", "-i", "http", "--shared-memory", "system"],
    "shared memory over gRPC": ["-m", "add_sub", "-i", "grpc", "--shared-memory", "system"],
    "a stream": ["-m", "add_sub", "-i", "grpc", "--streaming", "--async"],
    "many responses": ["-m", "repeat", "-i", "grpc", "--streaming", "--async", "--input-data", "DATA"],
    "sequences over HTTP": ["-m", "accumulate", "-i", "http", "--sequence-length", "5", "--input-data", "zero"],
    "sequences in a stream": [
        *("-m", "accumulate", "-i", "grpc", "--streaming", "--sequence-length", "5", "--input-data", "zero")
    ],
    "text": ["-m", "text", "-i", "http", "--shape", "TEXT:4", "--string-length", "16"],
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Headrace]:
    repository = for_headrace(tmp_path_factory.mktemp("headrace"))
    with headrace(repository, (*EXPLICIT, "--shared-memory", "*")) as made:
        yield made


@pytest.fixture
def data(tmp_path: Path) -> str:
    """A file with the input of `repeat`."""
    path = tmp_path / "data.json"
    path.write_text(json.dumps({"data": [{"IN": {"content": [1, 2, 3], "shape": [3]}}]}))
    return str(path)


@pytest.mark.parametrize("load", LOADS.values(), ids=LOADS)
def test_it_runs(server: Headrace, tmp_path: Path, data: str, load: list[str]) -> None:
    arguments = [data if word == "DATA" else word for word in load]
    assert run(tmp_path, server.grpc if "grpc" in load else server.http, arguments).rps > 0


@pytest.mark.parametrize("wire", ["http", "grpc", "runtime"])
@pytest.mark.parametrize("model", ["add_sub", "repeat"])
async def test_a_stream_through_the_gateway_ends_with_its_final_response(
    server: Headrace, tmp_path: Path, data: str, model: str, wire: str
) -> None:
    """perf_analyzer waits for a timeout of seconds where no response is marked as final."""
    pools: dict[str, dict[str, Any]] = {
        "http": {"protocol": "oip-http", "endpoints": [f"http://{server.http}"]},
        "grpc": {"protocol": "oip-grpc", "endpoints": [f"http://{server.grpc}"]},
        "runtime": {"runtime": {"kind": "tensor", "repository": str(for_headrace(tmp_path / "models", [model]))}},
    }
    configuration = {
        "listen": {"http": "127.0.0.1:0", "grpc": "127.0.0.1:0", "admin": "127.0.0.1:0"},
        "pools": [{"name": "models", **pools[wire]}],
        "models": [{"name": model, "routes": [{"to": "models"}]}],
        "tenants": [{"name": "acme", "models": ["*"]}],
    }
    async with gateway(tmp_path, configuration) as running:
        key = await running.key()
        await running.until("all(e['health'] == 'healthy' for e in s['endpoints'])")
        load = ["-m", model, "-i", "grpc", "--streaming", "--async", "-H", f"authorization: Bearer {key}"]
        load += ["--input-data", data] if model == "repeat" else []
        report = await asyncio.to_thread(run, tmp_path, running.grpc, load, 30, 1)
    assert report.p50_ms < WATCHDOG_MS
