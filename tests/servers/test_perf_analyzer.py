"""NVIDIA's load generator, whose client is in C++, runs every kind of load on our runtime."""

import asyncio
import csv
import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from loadtests.tensors import perf_analyzer
from loadtests.venvs import InstallError
from tests.servers.headrace import EXPLICIT, Headrace, headrace
from tests.servers.repositories import for_headrace
from tests.support.absent import absent
from tests.support.processes import gateway

pytestmark = pytest.mark.timeout(1800)
WATCHDOG_US = 1e6
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
def program() -> perf_analyzer.PerfAnalyzer:
    try:
        return perf_analyzer.install()
    except InstallError as error:
        absent(f"perf_analyzer: {error}")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Headrace]:
    repository = for_headrace(tmp_path_factory.mktemp("headrace"))
    with headrace(repository, (*EXPLICIT, "--shared-memory", "*")) as made:
        yield made


@pytest.mark.parametrize("load", LOADS.values(), ids=LOADS)
def test_it_runs(program: perf_analyzer.PerfAnalyzer, server: Headrace, tmp_path: Path, load: list[str]) -> None:
    data = tmp_path / "data.json"
    data.write_text(json.dumps({"data": [{"IN": {"content": [1, 2, 3], "shape": [3]}}]}))
    arguments = [str(data) if word == "DATA" else word for word in load]
    where = ["-u", server.grpc if "grpc" in load else server.http]
    often = ["--concurrency-range", "2", "--request-count", "60"]
    assert "throughput:" in _run(program, [*arguments, *where, *often])


@pytest.mark.parametrize("wire", ["http", "grpc", "runtime"])
@pytest.mark.parametrize("model", ["add_sub", "repeat"])
async def test_a_stream_through_the_gateway_ends_with_its_final_response(
    program: perf_analyzer.PerfAnalyzer, server: Headrace, tmp_path: Path, model: str, wire: str
) -> None:
    """perf_analyzer waits for a timeout of seconds where no response is marked as final."""
    data = tmp_path / "data.json"
    data.write_text(json.dumps({"data": [{"IN": {"content": [1, 2, 3], "shape": [3]}}]}))
    inputs = ["--input-data", str(data)] if model == "repeat" else []
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
        load = ["-m", model, "-i", "grpc", "--streaming", "--async", *inputs, "-u", running.grpc]
        often = ["--concurrency-range", "1", "--request-count", "30", "-H", f"authorization: Bearer {key}"]
        report = tmp_path / "report.csv"
        await asyncio.to_thread(_run, program, [*load, *often, "-f", str(report)])
    (row,) = csv.DictReader(report.read_text().splitlines())
    assert float(row["p50 latency"]) < WATCHDOG_US


def _run(program: perf_analyzer.PerfAnalyzer, arguments: list[str]) -> str:
    environment = {**os.environ, "LD_LIBRARY_PATH": str(program.libraries)}
    command = [str(program.program), *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
