"""Running tensor servers: the address of each, and the processes that are measured."""

import contextlib
import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import NamedTuple

from loadtests.peers import networks, triton
from loadtests.servers import POLL_S, START_TIMEOUT_S, Launch, StartError, child, free_port, free_ports, log_tail
from loadtests.tensors.peer import OIP, OIP_PATH, SINGLE_THREAD, Peer, http_request, is_right, post, send
from loadtests.tensors.repositories import SUFFIX

TIMEOUT_S = 30


class Door(NamedTuple):
    """A port, and the process that listens there."""

    port: int
    pid: int


@dataclass(frozen=True, slots=True)
class Target:
    """A running server.

    `doors` by protocol, `plain` the request that `load.c` sends. `statistics` is the port with the counts of
    batches; for a gateway, that of the server behind it. `suffix` ends the names of its models,
    `keys` are by protocol as the doors. `inside` enters its network.
    """

    name: str
    doors: Mapping[str, Door]
    plain: Path
    statistics: int | None = None
    suffix: str = ""
    keys: Mapping[str, str] = field(default_factory=dict)
    inside: Sequence[str] = field(default_factory=list)


class Counts(NamedTuple):
    """The statistics that a server reports for a model."""

    requests: int
    rows: int
    executions: int


def counts(port: int, model: str) -> Counts:
    """From `/stats`."""
    connection = HTTPConnection("127.0.0.1", port, timeout=TIMEOUT_S)
    try:
        connection.request("GET", f"/v2/models/{model}/stats")
        (statistics,) = json.loads(connection.getresponse().read())["model_stats"]
    finally:
        connection.close()
    done = statistics["inference_stats"]["success"]["count"]
    return Counts(int(done), int(statistics["inference_count"]), int(statistics["execution_count"]))


@contextlib.contextmanager
def server(name: str, launch: Launch, core: str, folder: Path, ready: Callable[[int], bool]) -> Iterator[int]:
    """A process, ready and then stopped. Its id.

    Raises:
        StartError: it ended, or was not ready within ``START_TIMEOUT_S``.
    """
    with child(name, launch, core, folder) as process:
        deadline = time.monotonic() + START_TIMEOUT_S
        while not ready(process.pid):
            if process.poll() is not None or time.monotonic() > deadline:
                raise StartError(f"{name} is not ready:\n{log_tail(name, folder)}")
            time.sleep(POLL_S)
        try:
            yield process.pid
        except BaseException as error:
            error.add_note(f"{name}'s log:\n{log_tail(name, folder, 40)}")
            raise


def is_ready(port: int, path: str = "/v2/health/ready") -> bool:
    """Whether a GET is answered well."""
    connection = HTTPConnection("127.0.0.1", port, timeout=TIMEOUT_S)
    try:
        connection.request("GET", path)
        return connection.getresponse().status == 200
    except (OSError, HTTPException):
        return False
    finally:
        connection.close()


@contextlib.contextmanager
def running_triton(venv: Path, repository: Path, core: str, folder: Path) -> Iterator[list[Target]]:
    """One server, which is two targets: its models without a queue delay, and those with one."""
    ports = triton.Ports(*free_ports(3))
    started = triton.launch(venv, repository, ports, ["--model-control-mode=none"])
    launch = replace(started, env={**started.env, **SINGLE_THREAD})
    with contextlib.ExitStack() as stack:
        stack.callback(triton.sweep, ports)
        pid = stack.enter_context(server("triton", launch, core, folder, lambda _: is_ready(ports.http)))
        doors = {"http": Door(ports.http, pid), "grpc": Door(ports.grpc, pid)}
        made = []
        for suffix in ("", SUFFIX):
            plain = folder / f"triton{suffix}.http"
            plain.write_bytes(http_request(OIP_PATH.replace("add_sub", f"add_sub{suffix}"), OIP))
            name = f"triton{suffix.replace('_', '-')}"
            made.append(checked(Target(name, doors, plain, statistics=ports.http, suffix=suffix)))
        yield made


@contextlib.contextmanager
def running_peer(peer: Peer, venv: Path, core: str, folder: Path) -> Iterator[Target]:
    """A server that adds and subtracts, in a network of its own where it needs one."""
    home = folder / peer.name
    home.mkdir()
    port, plain = free_port(), folder / f"{peer.name}.http"
    plain.write_bytes(http_request(peer.path, peer.document))
    launch = peer.launch(home, port, venv)
    if peer.apart:
        launch = replace(launch, command=[*networks.prefix(), *launch.command])

    def inside(pid: int) -> list[str]:
        return ["nsenter", "--target", str(pid), "--user", "--preserve-credentials", "--net"] if peer.apart else []

    with server(peer.name, launch, core, home, lambda pid: post(port, plain, inside(pid)) is not None) as pid:
        yield checked(Target(peer.name, {"http": Door(port, pid)}, plain, inside=inside(pid)))


def checked(target: Target) -> Target:
    """The target, once it has added and subtracted right. On a busy machine a server may refuse its first requests.

    Raises:
        StartError: a wrong answer, or none within ``START_TIMEOUT_S``.
    """
    deadline = time.monotonic() + START_TIMEOUT_S
    while (done := send(target.doors["http"].port, target.plain, list(target.inside))).returncode != 0:
        if time.monotonic() > deadline:
            reason = done.stderr.decode(errors="replace")
            raise StartError(f"{target.name} does not add and subtract: {reason}")
        print(f"{target.name} is not ready: {done.stderr.decode(errors='replace')}", file=sys.stderr)
        time.sleep(POLL_S)
    if not is_right(done.stdout):
        raise StartError(f"{target.name} does not add and subtract: {done.stdout[:300]!r}")
    return target
