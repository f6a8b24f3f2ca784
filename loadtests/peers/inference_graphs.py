"""KServe's InferenceGraphs, one for each type of node, for its router and for our gateway before the same servers.

Our configuration is the one that `headrace import inferencegraph` prints.
"""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import yaml

from config.document import parse_text
from config.imports.inference_graph import read_graph
from config.imports.pipeline import convert
from loadtests.peers import kserve_router
from loadtests.servers import Launch, StartError, child
from loadtests.tensors.headrace import serving, surroundings
from loadtests.tensors.peer import http_request, post
from loadtests.tensors.targets import Door, Target

ROW: Final = [0.25, 0.5, 1.5, 2.25]
START_S = 30.0


def step(model: str, server: int, **more: Any) -> dict[str, Any]:
    """One step of a graph that calls a model of a server on loopback."""
    return {"name": model, "serviceUrl": f"http://127.0.0.1:{server}/v1/models/{model}:predict", **more}


def spec(router: str, *steps: Mapping[str, Any]) -> dict[str, Any]:
    """The specification of a graph with one node."""
    return {"nodes": {"root": {"routerType": router, "steps": list(steps)}}}


def graphs(server: int) -> dict[str, dict[str, Any]]:
    """The graphs of the benchmark, by name, over the models of one server."""
    chained = {"data": "$response", "mapPredictionsToInstances": True, "dependency": "Hard"}
    return {
        "sequence": spec("Sequence", step("a", server, dependency="Hard"), step("b", server, **chained)),
        "switch": spec(
            "Switch",
            step("a", server, condition="parameters.premium"),
            step("b", server, condition="instances"),
        ),
        "ensemble": spec("Ensemble", step("a", server, dependency="Hard"), step("b", server, dependency="Hard")),
        "splitter": spec("Splitter", step("a", server, weight=30), step("b", server, weight=70)),
    }


REQUESTS: Final[Mapping[str, Mapping[str, Any]]] = {
    "sequence": {"instances": ROW},
    "switch": {"instances": ROW, "parameters": {"premium": True}},
    "ensemble": {"instances": ROW},
    "splitter": {"instances": ROW},
}


@dataclass(frozen=True, slots=True)
class ImportedGraphs:
    """Our configuration: one pipeline for each graph. The pools of equal services are one pool."""

    pools: dict[str, dict[str, Any]] = field(default_factory=dict)
    models: dict[str, dict[str, Any]] = field(default_factory=dict)

    def add(self, name: str, graph: Mapping[str, Any]) -> None:
        """Import the graph of this name."""
        document = {"kind": "InferenceGraph", "metadata": {"name": name}, "spec": dict(graph)}
        written, _ = convert(read_graph(parse_text(yaml.safe_dump(document), name)))
        self.pools.update({pool["name"]: pool for pool in written["pools"]})
        self.models.update({model["name"]: model for model in written["models"]})

    def configuration(self, folder: Path, listen: Sequence[int]) -> dict[str, Any]:
        """The YAML as data."""
        pools = [{**pool, "max_connections": 4096} for pool in self.pools.values()]
        return {**surroundings(folder, listen), "pools": pools, "models": list(self.models.values())}


def imported(named: Mapping[str, Mapping[str, Any]]) -> ImportedGraphs:
    """The graphs as our pipelines."""
    made = ImportedGraphs()
    for name, graph in named.items():
        made.add(name, graph)
    return made


@contextlib.contextmanager
def running_server(program: Path, core: str, folder: Path) -> Iterator[int]:
    """The server behind both, `mock_upstream`. Its port."""
    with child("server", Launch([str(program)]), core, folder) as process:
        while not (text := (folder / "server.log").read_text()).endswith("\n"):
            if process.poll() is not None:
                raise StartError("the server of the graphs has not started")
        yield int(text)


@contextlib.contextmanager
def running_ours(server: int, core: str, folder: Path) -> Iterator[dict[str, Target]]:
    """Our gateway with all graphs: the target of each."""
    ours = imported(graphs(server))
    with serving("headrace", core, folder, ours.configuration) as (http, _, key):
        yield {
            name: _checked(name, "headrace", http, f"/v1/models/{name}:predict", folder, f"Bearer {key}")
            for name in graphs(server)
        }


@contextlib.contextmanager
def running_router(binary: Path, name: str, server: int, core: str, folder: Path) -> Iterator[Target]:
    """KServe's router with one graph."""
    with kserve_router.running(binary, graphs(server)[name], core, folder) as pid:
        yield _checked(name, kserve_router.NAME, Door(kserve_router.PORT, pid), "/", folder)


def _checked(name: str, target: str, door: Door, path: str, folder: Path, credential: str = "") -> Target:
    """The target of a graph, after one answer with predictions. Raises `StartError`."""
    plain = folder / f"{target}-{name}.http"
    plain.write_bytes(http_request(path, REQUESTS[name], {"Authorization": credential} if credential else {}))
    body = post(door.port, plain, [])
    if body is None or b'"predictions"' not in body:
        raise StartError(f"{target} does not answer {name}: {(body or b'no response')[:300]!r}")
    return Target(target, {"http": door}, plain)
