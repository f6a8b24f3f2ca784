"""NVIDIA's load generator, whose client is in C++, runs every kind of load on our runtime."""

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from loadtests.tensors import perf_analyzer
from loadtests.venvs import InstallError
from tests.servers.headrace import EXPLICIT, Headrace, headrace
from tests.servers.repositories import for_headrace
from tests.support.absent import absent

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]
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
    environment = {**os.environ, "LD_LIBRARY_PATH": str(program.libraries)}
    command = [str(program.program), *arguments, *where, *often]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "throughput:" in done.stdout
