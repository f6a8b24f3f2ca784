"""A real Ray Serve with three applications and its dashboard: `with ray_serve() as server`."""

import contextlib
import functools
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from loadtests.peers import ray_serve as peer
from loadtests.servers import Launch, StartError
from loadtests.venvs import ensure
from tests.servers.started import Started, answers, started

PROGRAMS = Path(__file__).parent / "programs"
INNER = (8000, 9000, 8265, 8080)
TOKEN = "of-the-cluster"
SERVICE = "/ray.serve.UserDefinedService/"
AB3 = b"\x0a\x02ab\x18\x03"
"""UserDefinedMessage {name: "ab", num: 3}."""
VERSION = "2.60.0"
METRIC = b"ray_serve_deployment_queued_queries"
APPLICATION_SECONDS = 600.0


@dataclass(frozen=True, slots=True)
class RayServe:
    """A running one: `paths` over HTTP with two replicas, `messages` over gRPC, `scaled` over HTTP."""

    server: Started

    @property
    def url(self) -> str:
        """The URL of the application `paths`."""
        return f"{self.server.url(0)}/paths"

    @property
    def scaled_url(self) -> str:
        """The URL of the application `scaled`, whose number of replicas others set."""
        return f"{self.server.url(0)}/scaled"

    @property
    def grpc(self) -> str:
        return self.server.url(1)

    @property
    def dashboard_port(self) -> int:
        return self.server.ports[2]

    @property
    def metrics(self) -> str:
        return f"{self.server.url(3)}/metrics"


@contextlib.contextmanager
def ray_serve() -> Iterator[RayServe]:
    """Ray Serve in a network of its own, since it listens on every address; its applications and metrics are ready."""
    install = functools.partial(ensure, "ray-serve", peer.REQUIREMENTS)
    with started("ray-serve", install, _launch, ports=4, ready="/-/healthz") as server:
        end = time.monotonic() + APPLICATION_SECONDS
        while not (
            answers(server.ports[0], "/paths/ready", words=b"paths")
            and answers(server.ports[3], "/metrics", words=METRIC)
        ):
            if time.monotonic() > end:
                raise StartError(f"ray-serve has no application:\n{server.log()}")
            time.sleep(0.2)
        yield RayServe(server)


def _launch(folder: Path, ports: tuple[int, ...], venv: Path) -> Launch:
    pairs = [f"{outer}:{inner}" for outer, inner in zip(ports, INNER, strict=True)]
    program = [str(venv / "bin/python"), str(PROGRAMS / "ray_apps.py"), *map(str, INNER)]
    env = {
        "RAY_USAGE_STATS_ENABLED": "0", "RAY_TMPDIR": str(folder), "RAY_DEDUP_LOGS": "0",
        "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": TOKEN, "RAY_metrics_report_interval_ms": "1000",
    }  # fmt: skip
    return Launch([sys.executable, str(PROGRAMS / "apart.py"), *pairs, "--", *program], env=env)
