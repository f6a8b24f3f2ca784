"""A real Ray cluster of several nodes, with a real gateway beside it: `with ray_cluster() as cluster`.

Both are in a network of their own, since Ray listens on every address.
"""

import contextlib
import functools
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any

import yaml

from loadtests.servers import Launch
from loadtests.venvs import ensure
from tests.servers.started import Started, started

PROGRAMS = Path(__file__).parent / "programs"
REPOSITORY = Path(__file__).parents[2]
REQUIREMENTS = ("ray[default]==2.60.0", "psutil==7.2.2")
CONTROL, HTTP, ADMIN = 7000, 8080, 8082
WAIT_SECONDS = 300.0


@dataclass(frozen=True, slots=True)
class RayNodes:
    """A running one."""

    server: Started
    venv: Path

    @property
    def url(self) -> str:
        """The gateway's URL."""
        return self.server.url(1)

    @property
    def admin(self) -> str:
        """The URL of the gateway's admin listener."""
        return self.server.url(2)

    def call(self, name: str, /, **message: Any) -> dict[str, Any]:
        """Control the cluster."""
        return get(self.server.ports[0], f"/{name}", message)

    def nodes(self) -> dict[str, list[int]]:
        """The processes of runtimes on each node."""
        return dict(self.call("state")["nodes"])

    def servers(self) -> list[int]:
        """The processes of runtimes in the cluster."""
        return [pid for pids in self.nodes().values() for pid in pids]

    def spread(self) -> list[int]:
        """The numbers of runtimes on the nodes that run some, in order."""
        return sorted(len(pids) for pids in self.nodes().values() if pids)

    def busy(self) -> str:
        """A node that runs a runtime."""
        return next(name for name, pids in self.nodes().items() if pids)

    def runtime(self, kind: str, ray: Mapping[str, Any] = {}, **settings: Any) -> dict[str, Any]:
        """The section of a runtime in this cluster."""
        cluster = {
            "address": self.call("state")["address"], "driver": str(self.venv / "bin/python"),
            "python": sys.executable, **ray,
        }  # fmt: skip
        env = {"PYTHONPATH": str(REPOSITORY), "HOME": os.environ["HOME"]}
        return {"kind": kind, "on": "ray", "ray": cluster, "env": env, **settings}

    def start(self, config: Mapping[str, Any], name: str = "gateway") -> int:
        """Start a gateway; returns its process id."""
        self.write(config, name)
        path = self.server.folder / f"{name}.yaml"
        argv = [sys.executable, "-m", "gateway", "serve", "--config", str(path)]
        env = {"PYTHONPATH": os.pathsep.join([str(REPOSITORY), *filter(None, sys.path)])}
        return int(self.call("run", name=name, argv=argv, env=env, cwd=str(self.server.folder))["pid"])

    def write(self, config: Mapping[str, Any], name: str = "gateway") -> None:
        """Replace a gateway's configuration, which it then reloads."""
        listen = {"http": f"127.0.0.1:{HTTP}", "admin": f"127.0.0.1:{ADMIN}"}
        written = {"listen": listen, "version": 1, **config}
        written.setdefault("state", {"database": f"sqlite:///{self.server.folder}/state.db"})
        written["access_log"] = {"to": str(self.server.folder / "access.log")}
        path = self.server.folder / f"{name}.yaml"
        new = path.with_suffix(".new")
        new.write_text(yaml.safe_dump(written))
        new.replace(path)

    def metrics(self) -> str:
        """The gateway's metrics."""
        return read(self.server.ports[2], "/metrics", None).decode()

    def inside(self, program: str, *arguments: str) -> str:
        """The output of a Python program in the network of the cluster."""
        return str(self.call("output", argv=[sys.executable, "-c", program, *arguments])["output"]).strip()

    def stop(self, number: int = signal.SIGTERM, name: str = "gateway") -> None:
        """Signal a gateway and wait for its end."""
        self.call("signal", name=name, number=int(number))

    def endpoints(self, pool: str) -> list[dict[str, Any]]:
        """The endpoints of a pool, by the gateway."""
        described = get(self.server.ports[2], "/admin/pools")
        return next((list(each["endpoints"]) for each in described["pools"] if each["pool"] == pool), [])

    def scale(self, pool: str) -> dict[str, Any]:
        """The replicas of a pool, by the gateway."""
        described = get(self.server.ports[2], "/admin/pools")
        return dict(next(each["replicas"] for each in described["pools"] if each["pool"] == pool))

    def until(self, condition: Callable[[], Any], goal: str, seconds: float = WAIT_SECONDS) -> Any:
        """Wait for a condition; returns its value."""
        end = time.monotonic() + seconds
        while True:
            with contextlib.suppress(OSError, HTTPException, KeyError, StopIteration, ValueError):
                if value := condition():
                    return value
            assert time.monotonic() < end, f"{goal}:\n{self.server.log(80)}"
            time.sleep(0.1)

    def until_ready(self, pool: str, count: int) -> None:
        """Wait until a number of replicas is ready."""
        healthy = "healthy"
        self.until(
            lambda: sum(each["health"] == healthy for each in self.endpoints(pool)) == count, f"{count} are not ready"
        )


@contextlib.contextmanager
def ray_cluster(nodes: int = 3, cpus: int = 2) -> Iterator[RayNodes]:
    """A head without resources, and some nodes."""
    install = functools.partial(ensure, "ray-default", REQUIREMENTS)
    launch = functools.partial(_launch, nodes, cpus)
    with started("ray-cluster", install, launch, ports=3, ready="/state") as server:
        yield RayNodes(server, install())


def _launch(nodes: int, cpus: int, folder: Path, ports: tuple[int, ...], venv: Path) -> Launch:
    pairs = [f"{outer}:{inner}" for outer, inner in zip(ports, (CONTROL, HTTP, ADMIN), strict=True)]
    program = [str(venv / "bin/python"), str(PROGRAMS / "ray_cluster.py"), str(CONTROL), str(nodes), str(cpus)]
    env = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_TMPDIR": str(folder), "RAY_DEDUP_LOGS": "0"}
    return Launch([sys.executable, str(PROGRAMS / "apart.py"), *pairs, "--", *program], env=env)


def get(port: int, path: str, message: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The JSON of a path; with a message, of a POST. Raises `OSError`, `HTTPException` and `ValueError`."""
    return dict(json.loads(read(port, path, message)))


def read(port: int, path: str, message: Mapping[str, Any] | None) -> bytes:
    """The body of a path; with a message, of a POST. Raises `OSError`, `HTTPException` and `ValueError`."""
    connection = HTTPConnection("127.0.0.1", port, timeout=300)
    try:
        connection.request("GET" if message is None else "POST", path, json.dumps(message or {}))
        response = connection.getresponse()
        body = response.read()
        if response.status != 200:
            raise ValueError(f"{path}: {response.status} {body[:500]!r}")
        return body
    finally:
        connection.close()
