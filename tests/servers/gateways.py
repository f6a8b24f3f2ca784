"""A gateway before a server of tensors: HTTP is forwarded as HTTP, gRPC as gRPC."""

import contextlib
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from loadtests.tensors.headrace import running_gateway
from loadtests.tensors.targets import Door, Target
from tests.servers.headrace import Headrace
from tests.servers.triton import Triton


@contextlib.contextmanager
def in_front(
    server: Triton | Headrace, folder: Path, names: Sequence[str], pipelines: Mapping[str, Any] | None = None
) -> Iterator[Target]:
    """With routes to these models, and with pipelines of them."""
    doors = {"http": Door(server.ports.http, server.pid), "grpc": Door(server.ports.grpc, server.pid)}
    cores = ",".join(str(core) for core in sorted(os.sched_getaffinity(0)))
    target = Target("headrace", doors, folder)
    with running_gateway("gateway", target, cores, folder, names, pipelines) as running:
        yield running


def address(gateway: Target, wire: str) -> str:
    """`HOST:PORT` of its listener for `http` or `grpc`."""
    return f"127.0.0.1:{gateway.doors[wire].port}"


def credential(gateway: Target, wire: str) -> dict[str, str]:
    """The header with the key of that listener's gateway."""
    return {"authorization": f"Bearer {gateway.keys[wire]}"}
