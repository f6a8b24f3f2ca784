"""A gateway process with a minimal file: what it imports, and how many tasks it has."""

import threading
from collections.abc import Iterator
from http.server import ThreadingHTTPServer

import pytest

from loadtests.bench_idle import MINIMAL, OURS, HealthyServer, measure
from loadtests.servers import REPOSITORY

pytestmark = pytest.mark.processes

UNUSED = (
    "aiohttp", "grpc", "h2", "jwt", "numpy", "opentelemetry", "psycopg", "redis", "rich.console",
    "adapters.brokers", "adapters.detection", "adapters.upstreams.anthropic", "adapters.upstreams.bus",
    "gateway.admin.api", "gateway.admin.console", "gateway.process.supervisor", "gateway.traffic.discovery.discoverer",
    *(f"gateway.features.{name}" for name in ("alerts", "bus", "experiments", "journal", "picker", "pipelines",
      "placement", "recording", "replay", "requests", "rollouts", "scaling", "stored", "usage")),
)  # fmt: skip
"""Modules that a file without their sections does not need."""


@pytest.fixture
def upstream() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), HealthyServer) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"127.0.0.1:{server.server_port}"
        server.shutdown()


def test_a_minimal_file_imports_no_feature_and_has_few_tasks(upstream: str) -> None:
    idle, lists = measure(REPOSITORY, MINIMAL.format(upstream=upstream), seconds=0.1)
    assert [name for name in lists["modules"] if f"{name}.".startswith(tuple(f"{each}." for each in UNUSED))] == []
    ours = [name for name in lists["modules"] if name.partition(".")[0] in OURS]
    assert len(ours) == idle.modules <= 560
    assert idle.tasks <= 6, lists["tasks"]
