"""Our tensor runtime as a process, and our gateway before a tensor server."""

import contextlib
import functools
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from loadtests.gateways.headrace import TENANT, create_key
from loadtests.servers import Launch, StartError, free_ports
from loadtests.tensors.peer import OIP, OIP_PATH, SINGLE_THREAD, http_request
from loadtests.tensors.targets import Door, Target, checked, is_ready, server
from loadtests.tensors.workloads import MODELS

ATTEMPTS = 3
PROTOCOLS = {"http": "oip-http", "grpc": "oip-grpc"}


class Ports(NamedTuple):
    """Where it listens, on loopback."""

    http: int
    grpc: int


def launch(repository: Path, options: Sequence[str] = ()) -> Launch:
    """The command that serves a repository on ports that its log names."""
    doors = ["--http-port", "0", "--grpc-port", "0"]
    command = [sys.executable, "-m", "runtimes.tensor", "--repository", str(repository), *doors, *options]
    return Launch(command, env=SINGLE_THREAD)


def ports(log: str) -> Ports | None:
    """The ports in the runtime's log; None while it lists none."""
    matches = [re.search(rf"{door} on (?:http://)?127\.0\.0\.1:(\d+)", log) for door in ("HTTP", "gRPC")]
    numbers = [int(match[1]) for match in matches if match is not None]
    return Ports(*numbers) if len(numbers) == 2 else None


@contextlib.contextmanager
def running_headrace(repository: Path, core: str, folder: Path) -> Iterator[Target]:
    """The runtime, with all models of a repository."""
    home = folder / "headrace"
    home.mkdir()

    def listening() -> Ports | None:
        return ports((home / "headrace.log").read_text(errors="replace"))

    def ready(_: int) -> bool:
        return (where := listening()) is not None and is_ready(where.http)

    with server("headrace", launch(repository), core, home, ready) as pid:
        where, plain = listening(), folder / "headrace.http"
        assert where is not None
        plain.write_bytes(http_request(OIP_PATH, OIP))
        doors = {"http": Door(where.http, pid), "grpc": Door(where.grpc, pid)}
        yield checked(Target("headrace", doors, plain, statistics=where.http))


@contextlib.contextmanager
def running_gateway(
    name: str,
    behind: Target,
    core: str,
    folder: Path,
    models: Sequence[str] = MODELS,
    pipelines: Mapping[str, Any] | None = None,
) -> Iterator[Target]:
    """Our gateway before a server: one process for each of the server's listeners. `pipelines` are by name."""
    with contextlib.ExitStack() as stack:
        doors, keys, plain = {}, {}, folder / f"{name}.http"
        for kind in behind.doors:
            door = _gateway(name, kind, behind.doors[kind].port, core, folder, (models, pipelines or {}))
            doors[kind], keys[kind] = stack.enter_context(door)
        plain.write_bytes(http_request(OIP_PATH, OIP, {"Authorization": f"Bearer {keys['http']}"}))
        yield checked(Target(name, doors, plain, statistics=behind.statistics, keys=keys))


@contextlib.contextmanager
def _gateway(
    name: str, kind: str, upstream: int, core: str, folder: Path, models: tuple[Sequence[str], Mapping[str, Any]]
) -> Iterator[tuple[Door, str]]:
    """One process, and a key."""

    def written(home: Path, listen: Sequence[int]) -> dict[str, Any]:
        return config(home, listen, PROTOCOLS[kind], f"http://127.0.0.1:{upstream}", *models)

    with serving(f"{name}-{kind}", core, folder, written) as (http, grpc, key):
        yield http if kind == "http" else grpc, key


@contextlib.contextmanager
def serving(
    name: str, core: str, folder: Path, written: Callable[[Path, Sequence[int]], dict[str, Any]]
) -> Iterator[tuple[Door, Door, str]]:
    """A gateway with the configuration that `written` returns for a folder and three ports: HTTP, gRPC, and a key.

    Its ports were free a moment ago; another process may be faster, so it is tried again.
    """
    with contextlib.ExitStack() as stack:
        for attempt in range(ATTEMPTS):
            home = folder / f"{name}-{attempt}"
            home.mkdir()
            listen = http, grpc, admin = free_ports(3)
            file = home / "headrace.yaml"
            file.write_text(yaml.safe_dump(written(home, listen), sort_keys=False))
            key = create_key(Path(sys.executable), file)
            command = [sys.executable, "-m", "gateway", "serve", "--config", str(file)]
            try:
                pid = stack.enter_context(server(name, Launch(command), core, home, functools.partial(_is_up, admin)))
            except StartError as error:
                if "in use" not in str(error) or attempt == ATTEMPTS - 1:
                    raise
                continue
            yield Door(http, pid), Door(grpc, pid), key
            return


def _is_up(admin: int, _pid: int) -> bool:
    return is_ready(admin, "/readyz")


def config(
    folder: Path,
    listen: Sequence[int],
    protocol: str,
    endpoint: str,
    models: Sequence[str],
    pipelines: Mapping[str, Any],
) -> dict[str, Any]:
    """The YAML as data: keys, limits that count but never bind, retry and breaker, probes, metrics, an access log."""
    pool = {"name": "models", "protocol": protocol, "endpoints": [endpoint], "max_connections": 4096}
    route = {"to": "models", "retry": {"attempts": 3, "budget": "20%"}, "timeout": {"total": "60s"}}
    return {
        **surroundings(folder, listen),
        "pools": [pool],
        "models": [
            *({"name": name, "routes": [route]} for name in models),
            *({"name": name, "pipeline": pipeline} for name, pipeline in pipelines.items()),
        ],
    }


def surroundings(folder: Path, listen: Sequence[int]) -> dict[str, Any]:
    """The YAML as data, without pools and models."""
    http, grpc, admin = (f"127.0.0.1:{port}" for port in listen)
    limits = [
        {"requests": "100M/min", "rows": "1000M/min", "concurrency": 10_000},
        {"per": "key", "requests": "100M/min"},
    ]
    return {
        "version": 1,
        "listen": {"http": http, "grpc": grpc, "admin": admin},
        "state": {"database": f"sqlite:///{folder}/state.db"},
        "access_log": {"to": str(folder / "access.log")},
        "tenants": [{"name": TENANT, "models": ["*"], "limits": limits}],
    }
