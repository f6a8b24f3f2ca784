"""NVIDIA's load generator on ensembles of our runtime in both forms, and on the gateway's pipelines over its models."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from loadtests.tensors.ensemble_targets import ONE_PROCESS
from loadtests.tensors.targets import Target
from tests.servers.gateways import address, in_front
from tests.servers.headrace import EXPLICIT, Headrace, headrace
from tests.servers.perf_analyzer import run
from tests.servers.repositories import OF_ENSEMBLES, for_headrace, pipelines, with_ensembles

ROWS = ["--shape", "A:2,16", "--shape", "B:2,16"]
"""For pipelines, whose first dimension is part of the shape."""
WIRES = pytest.mark.parametrize("wire", ["http", "grpc"])


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Headrace]:
    """`chain` runs in a process of its own, `diamond` step by step."""
    repository = with_ensembles(for_headrace(tmp_path_factory.mktemp("headrace"), OF_ENSEMBLES))
    with (repository / "chain" / "config.pbtxt").open("a") as config:
        config.write(ONE_PROCESS)
    with headrace(repository, (*EXPLICIT, "--shared-memory", "*")) as running:
        yield running


@pytest.fixture(scope="module")
def gateway(server: Headrace, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    with in_front(server, tmp_path_factory.mktemp("gateway"), OF_ENSEMBLES, pipelines()) as running:
        yield running


@WIRES
@pytest.mark.parametrize("model", ["chain", "diamond"])
@pytest.mark.parametrize("memory", ["none", "system"])
def test_ensembles(server: Headrace, tmp_path: Path, wire: str, model: str, memory: str) -> None:
    load = ["-m", model, "-i", wire, "-b", "2", "--shared-memory", memory]
    report = run(tmp_path, getattr(server, wire), load)
    assert 0 < report.p50_ms <= report.p99_ms


@WIRES
@pytest.mark.parametrize("model", ["p_chain", "p_diamond"])
def test_pipelines(gateway: Target, tmp_path: Path, wire: str, model: str) -> None:
    load = ["-m", model, "-i", wire, *ROWS, "-H", f"authorization: Bearer {gateway.keys[wire]}"]
    report = run(tmp_path, address(gateway, wire), load)
    assert 0 < report.p50_ms <= report.p99_ms
