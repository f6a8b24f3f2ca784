"""The answers of KServe's router: `python -m tests.servers.graphs.router BINARY > FILE` records those of all cases."""

import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from http.client import HTTPConnection
from pathlib import Path
from typing import Any, Final, NamedTuple

from loadtests.peers import kserve_router, networks
from loadtests.servers import REPOSITORY
from tests.servers.graphs import models
from tests.servers.graphs.cases import WRITTEN, GraphCase, random_case

RECORD: Final = Path(__file__).parent / "kserve-router.json"
SEEDS: Final = range(60)
"""Of the recorded random graphs."""
SECONDS: Final = 900


class GraphAnswer(NamedTuple):
    """The answer to one request, and how often each model was called for it."""

    status: int
    document: Any
    calls: dict[str, int]


def send(port: int, path: str, body: Any, models_at: int, headers: Mapping[str, str] | None = None) -> GraphAnswer:
    """The answer of a server of graphs to one request."""
    status, document = _json(port, "POST", path, body, headers or {})
    return GraphAnswer(status, document, _json(models_at, "GET", "/calls", None, {})[1])


def _json(port: int, method: str, path: str, body: Any, headers: Mapping[str, str]) -> tuple[int, Any]:
    connection = HTTPConnection("127.0.0.1", port, timeout=300)
    try:
        encoded = None if body is None else json.dumps(body)
        connection.request(method, path, encoded, {"Content-Type": "application/json", **headers})
        response = connection.getresponse()
        return response.status, json.loads(response.read() or b"null")
    finally:
        connection.close()


def answers(binary: Path, cases: Mapping[str, GraphCase]) -> dict[str, list[GraphAnswer]]:
    """The router's answers, by case. It runs in a network of its own, since its port is fixed."""
    command = [*networks.prefix(), sys.executable, "-m", "tests.servers.graphs.router", str(binary), "-"]
    written = json.dumps({name: list(case) for name, case in cases.items()})
    done = subprocess.run(command, input=written, capture_output=True, text=True, timeout=SECONDS, cwd=REPOSITORY)
    assert done.returncode == 0, done.stderr[-2000:]
    return read(done.stdout)


def recorded_cases() -> dict[str, GraphCase]:
    """The cases whose answers are recorded: the written ones, and some random ones."""
    return {**WRITTEN, **{f"seed_{seed}": random_case(seed) for seed in SEEDS}}


def read(text: str) -> dict[str, list[GraphAnswer]]:
    """Recorded answers."""
    return {name: [GraphAnswer(*one) for one in each] for name, each in json.loads(text).items()}


def main(arguments: Sequence[str]) -> None:
    """Print the answers to all cases, or inside of the network to those of standard input."""
    binary = Path(arguments[0])
    if arguments[1:] != ["-"]:
        made = answers(binary, recorded_cases())
        lines = (f"{json.dumps(name)}: {json.dumps(each, sort_keys=True)}" for name, each in made.items())
        sys.stdout.write("{\n" + ",\n".join(lines) + "\n}\n")
        return
    cases = {name: GraphCase(*case) for name, case in json.load(sys.stdin).items()}
    server = models.server()
    threading.Thread(target=server.serve_forever, daemon=True).start()
    port = server.server_address[1]
    cores = ",".join(str(core) for core in sorted(os.sched_getaffinity(0)))
    made = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, case in cases.items():
            with kserve_router.running(binary, case.at(port), cores, Path(folder)):
                made[name] = [send(kserve_router.PORT, "/", body, port) for body in case.bodies]
    print(json.dumps(made))


if __name__ == "__main__":
    main(sys.argv[1:])
