"""Reads KServe's `InferenceGraph` (serving.kserve.io/v1alpha1), and checks what its webhook and router do not."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final, Literal, get_args

from config.document import Document, Node
from config.graph import cycle
from config.place import Place
from config.problem import ConfigError, Problem, closest

Router = Literal["Sequence", "Switch", "Ensemble", "Splitter"]
ROUTERS: Final[tuple[str, ...]] = get_args(Router)
ROOT: Final = "root"
MOST_NODES: Final = 100
"""More than any graph has. A chain of them is a pipeline of that depth."""
_TARGETS: Final = ("serviceName", "serviceUrl", "nodeName")


@dataclass(frozen=True, slots=True)
class InferenceGraphStep:
    """One step of a node, with exactly one target."""

    name: str
    service: str = ""
    url: str = ""
    node: str = ""
    data: str = ""
    weight: int = 0
    condition: str = ""
    """A path of gjson."""
    is_hard: bool = False
    """Whether an unsuccessful response of the step ends the node."""
    renames: bool = False
    """Whether the `predictions` of the response before it become its `instances`."""


@dataclass(frozen=True, slots=True)
class GraphNode:
    """A node, by its router's type."""

    router: str
    steps: tuple[InferenceGraphStep, ...]


@dataclass(frozen=True, slots=True)
class InferenceGraph:
    """The graph; `nodes` has `root`."""

    name: str
    namespace: str
    nodes: Mapping[str, GraphNode]
    timeout: int = 0
    """Seconds of one call of a service; 0 for none."""


def read_graph(document: Document) -> InferenceGraph:
    """Raises `ConfigError` with every problem."""
    root = Node(document.data)
    if root["kind"].text != "InferenceGraph":
        raise ConfigError([document.problem(("kind",), "expected InferenceGraph")])
    spec, metadata = root["spec"], root["metadata"]
    nodes = {
        name: GraphNode(node["routerType"].text or "", tuple(_steps(node["steps"])))
        for name, node in spec["nodes"].fields()
    }
    if problems := list(_problems(document, spec["nodes"], nodes)):
        raise ConfigError(problems)
    seconds = spec["routerTimeouts"]["serviceClient"].value or spec["timeout"].value
    return InferenceGraph(
        metadata["name"].text or "graph",
        metadata["namespace"].text or "default",
        nodes,
        seconds if isinstance(seconds, int) else 0,
    )


def _steps(steps: Node) -> Iterator[InferenceGraphStep]:
    for index, step in enumerate(steps):
        service, url, node = (step[field].text or "" for field in _TARGETS)
        weight = step["weight"].value
        yield InferenceGraphStep(
            step["name"].text or str(index),
            service,
            url,
            node,
            step["data"].text or "",
            weight if isinstance(weight, int) else 0,
            step["condition"].text or "",
            step["dependency"].text == "Hard",
            step["mapPredictionsToInstances"].value is True,
        )


def _problems(document: Document, at: Node, nodes: Mapping[str, GraphNode]) -> Iterator[Problem]:
    if ROOT not in nodes:
        yield document.problem(at.place, "needs a node `root`, where requests begin")
    for name, node in nodes.items():
        place: Place = (*at.place, name)
        if node.router not in ROUTERS:
            message = f"expected a router's type: {', '.join(ROUTERS)}"
            yield document.problem((*place, "routerType"), message, closest(node.router, ROUTERS))
        if not node.steps:
            yield document.problem((*place, "steps"), "has no steps")
        for index, step in enumerate(node.steps):
            for message, suggestion in _mistakes(node, step, nodes):
                yield document.problem((*place, "steps", index), message, suggestion)
    edges = {name: [step.node for step in node.steps if step.node in nodes] for name, node in nodes.items()}
    if circle := cycle(edges):
        path = " -> ".join(reversed((circle[-1], *circle)))
        yield document.problem((*at.place, circle[0]), f"calls itself: {path}. KServe's router would not end")
    elif len(nodes) > MOST_NODES or (ROOT in nodes and _written(edges, ROOT) > MOST_NODES):
        message = f"has too many nodes: a pipeline repeats a node wherever it is called, and can have {MOST_NODES}"
        yield document.problem(at.place, message)


def _written(edges: Mapping[str, list[str]], name: str) -> int:
    """How many nodes the pipeline of a node has."""
    counted: dict[str, int] = {}

    def count(node: str) -> int:
        if node not in counted:
            counted[node] = 1 + sum(map(count, edges[node]))
        return counted[node]

    return count(name)


def _mistakes(
    node: GraphNode, step: InferenceGraphStep, nodes: Mapping[str, GraphNode]
) -> Iterator[tuple[str, str | None]]:
    targets = sum(map(bool, (step.service, step.url, step.node)))
    if targets != 1:
        yield f"has {targets} targets: give exactly one of {', '.join(_TARGETS)}", None
    if step.node and step.node not in nodes:
        yield f"there is no node `{step.node}`", closest(step.node, nodes)
    if node.router == "Switch" and not step.condition:
        yield "a step of a Switch needs a condition", None
    if node.router == "Splitter" and step.weight <= 0:
        yield "a step of a Splitter needs a weight above 0", None
