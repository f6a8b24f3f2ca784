"""KServe's router of an InferenceGraph, `cmd/router` of kserve/kserve: a binary that its user builds with Go."""

import contextlib
import json
import os
import signal
import time
from collections.abc import Iterator, Mapping
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any, Final

from loadtests.servers import POLL_S, START_TIMEOUT_S, Launch, StartError, child, log_tail

NAME: Final = "kserve-router"
PORT: Final = 8080
"""Its port is fixed, and it listens on every address."""


@contextlib.contextmanager
def running(binary: Path, spec: Mapping[str, Any], core: str, folder: Path) -> Iterator[int]:
    """The router with the `spec` of a graph. Its process id. Raises `StartError`."""
    launch = Launch([str(binary), "--graph-json", json.dumps(spec)])
    if _answers():
        raise StartError(f"port {PORT} is in use, and {NAME} has no other: run in a network of your own")
    with child(NAME, launch, core, folder) as process:
        end = time.monotonic() + START_TIMEOUT_S
        while not _answers():
            if process.poll() is not None or time.monotonic() > end:
                raise StartError(f"{NAME} is not ready:\n{log_tail(NAME, folder)}")
            time.sleep(POLL_S)
        try:
            yield process.pid
        finally:
            os.kill(process.pid, signal.SIGKILL)  # after SIGTERM it sleeps for 30 s


def _answers() -> bool:
    connection = HTTPConnection("127.0.0.1", PORT, timeout=10)
    try:
        connection.request("GET", "/readyz")
        return connection.getresponse().status == 200
    except (OSError, HTTPException):
        return False
    finally:
        connection.close()
