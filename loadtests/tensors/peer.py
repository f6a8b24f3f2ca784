"""A server that adds and subtracts two rows with its own API, and the request that all of them receive."""

import json
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from loadtests.servers import Launch

MODELS = Path(__file__).parent / "models/add_sub"
ONE, OTHER = list(range(16)), [3] * 16
SUM = [one + other for one, other in zip(ONE, OTHER, strict=True)]
DIFFERENCE = [one - other for one, other in zip(ONE, OTHER, strict=True)]
ROWS = {"INPUT0": ONE, "INPUT1": OTHER}
OIP = {"inputs": [{"name": name, "datatype": "INT32", "shape": [1, 16], "data": row} for name, row in ROWS.items()]}
OIP_PATH = "/v2/models/add_sub/infer"
REQUEST_TIMEOUT_S = 60
SINGLE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
"""Of numpy's products, for every server: none has more threads for the model than another."""


@dataclass(frozen=True, slots=True)
class Peer:
    """The installation, the start and the request of a server.

    `apart`: it always listens on every address, so it runs in a network of its own, with loopback only.
    """

    name: str
    install: Callable[[], Path]
    launch: Callable[[Path, int, Path], Launch]
    """Takes the result of `install`, a port and a folder of its own."""
    path: str
    document: Mapping[str, Any]
    apart: bool = False


def http_request(path: str, document: Any, headers: Mapping[str, str] | None = None) -> bytes:
    """The whole HTTP request, as `load.c` sends it."""
    body = json.dumps(document, separators=(",", ":")).encode()
    more = "".join(f"{name}: {value}\r\n" for name, value in (headers or {}).items())
    head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n{more}"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


def post(port: int, request: Path, inside: list[str]) -> bytes | None:
    """The body of a good answer to the request in a file; None without one. `inside` enters the server's network."""
    done = send(port, request, inside)
    return done.stdout if done.returncode == 0 else None


def send(port: int, request: Path, inside: list[str]) -> subprocess.CompletedProcess[bytes]:
    """The finished program that sent the request: the body is its output, the reason of a failure its errors."""
    command = [*inside, sys.executable, "-m", "loadtests.tensors.post", str(port), str(request)]
    root = Path(__file__).parents[2]
    return subprocess.run(command, capture_output=True, cwd=root, timeout=REQUEST_TIMEOUT_S)


def is_right(body: bytes) -> bool:
    """Whether the sum and the difference are anywhere in it."""
    rows = list(_rows(json.loads(body)))
    return SUM in rows and DIFFERENCE in rows


def _rows(document: Any) -> Any:
    """Every list of numbers in a document."""
    if isinstance(document, dict):
        document = list(document.values())
    if isinstance(document, list):
        if document and not any(isinstance(one, list | dict) for one in document):
            yield document
        else:
            for one in document:
                yield from _rows(one)
