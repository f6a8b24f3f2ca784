"""NVIDIA's load generator on the same graphs: Triton's ensembles, ours in both forms, and the gateway's pipelines over
the single models of both servers."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from loadtests.tensors import perf_analyzer
from loadtests.tensors.headrace import running_gateway
from loadtests.tensors.targets import Door, Target
from loadtests.venvs import InstallError
from tests.servers.headrace import EXPLICIT, Headrace, headrace
from tests.servers.repositories import OF_ENSEMBLES, for_headrace, for_triton, with_ensembles
from tests.servers.test_triton_pipelines import PIPELINES, Server
from tests.servers.triton import Triton, triton
from tests.support.absent import absent

pytestmark = pytest.mark.timeout(1800)
ROWS = ["--shape", "A:2,16", "--shape", "B:2,16"]
"""For pipelines, whose first dimension is part of the shape."""
IN_ONE_PROCESS = 'parameters { key: "headrace.processes" value { string_value: "1" } }\n'
WIRES = pytest.mark.parametrize("wire", ["http", "grpc"])


@pytest.fixture(scope="module")
def program() -> perf_analyzer.PerfAnalyzer:
    try:
        return perf_analyzer.install()
    except InstallError as error:
        absent(f"perf_analyzer: {error}")


@pytest.fixture(scope="module")
def theirs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Triton]:
    with triton(with_ensembles(for_triton(tmp_path_factory.mktemp("triton"), OF_ENSEMBLES))) as server:
        yield server


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Headrace]:
    """`chain` runs in a process of its own, `diamond` step by step."""
    repository = with_ensembles(for_headrace(tmp_path_factory.mktemp("headrace"), OF_ENSEMBLES))
    with (repository / "chain" / "config.pbtxt").open("a") as config:
        config.write(IN_ONE_PROCESS)
    with headrace(repository, (*EXPLICIT, "--shared-memory", "*")) as server:
        yield server


@pytest.fixture(scope="module", params=["triton", "headrace"])
def behind(request: pytest.FixtureRequest) -> Server:
    """The server of the single models."""
    server: Server = request.getfixturevalue("theirs" if request.param == "triton" else "ours")
    return server


@pytest.fixture(scope="module")
def gateway(behind: Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    folder = tmp_path_factory.mktemp("gateway")
    doors = {"http": Door(behind.ports.http, behind.pid), "grpc": Door(behind.ports.grpc, behind.pid)}
    cores = ",".join(str(core) for core in sorted(os.sched_getaffinity(0)))
    with running_gateway(
        "gateway", Target("singles", doors, folder), cores, folder, OF_ENSEMBLES, PIPELINES
    ) as running:
        yield running


def run(
    program: perf_analyzer.PerfAnalyzer, folder: Path, address: str, wire: str, model: str, *more: str
) -> perf_analyzer.Report:
    """60 requests, two at a time. Fails if one of them fails."""
    table = folder / "report.csv"
    load = ["-m", model, "-i", wire, "-u", address, "--concurrency-range", "2", "--request-count", "60"]
    command = [str(program.program), *load, *more, "-f", str(table)]
    environment = {**os.environ, "LD_LIBRARY_PATH": str(program.libraries)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return perf_analyzer.parse(table.read_text())


@WIRES
@pytest.mark.parametrize("model", ["chain", "diamond"])
@pytest.mark.parametrize("shared", [False, True], ids=["", "shared memory"])
def test_ensembles(
    program: perf_analyzer.PerfAnalyzer,
    theirs: Triton,
    ours: Headrace,
    tmp_path: Path,
    wire: str,
    model: str,
    shared: bool,
) -> None:
    options = ["-b", "2", *(["--shared-memory", "system"] if shared else [])]
    for server in (theirs, ours):
        report = run(program, tmp_path, getattr(server, wire), wire, model, *options)
        assert report.rps > 0
        assert 0 < report.p50_ms <= report.p99_ms


@WIRES
@pytest.mark.parametrize("model", ["p_chain", "p_diamond"])
def test_pipelines(program: perf_analyzer.PerfAnalyzer, gateway: Target, tmp_path: Path, wire: str, model: str) -> None:
    header = ["-H", f"authorization: Bearer {gateway.keys[wire]}"]
    report = run(program, tmp_path, f"127.0.0.1:{gateway.doors[wire].port}", wire, model, *ROWS, *header)
    assert report.rps > 0
    assert 0 < report.p50_ms <= report.p99_ms
