"""An InferenceGraph of KServe as our pools and models, and the points in which they differ."""

from __future__ import annotations

import re
from collections.abc import Mapping
from textwrap import wrap
from typing import Any, Final
from urllib.parse import urlsplit

import yaml

from config.imports.draft import printable
from config.imports.inference_graph import ROOT, GraphNode, InferenceGraph, InferenceGraphStep

_MODEL_URL: Final = re.compile(r"/v[12]/models/(?P<model>[^/:]+)(?P<operation>:predict|/infer)?/?")
_FIELD: Final = re.compile(r"[A-Za-z_]\w{0,63}")
_NOT_A_NAME: Final = re.compile(r"[^A-Za-z0-9_]+")
OF_CONDITIONS: Final = (
    'Conditions: gjson tests whether a path of the body exists, so `{"ok": false}` fulfils `ok`. Here a condition is a'
    " typed expression. The name of a field, or of a parameter, becomes `has(request.NAME)`; write any other path anew:"
    " `headrace check` reports its line. The last branch takes all other requests, which are 404 there."
)
OF_DEPENDENCIES: Final = (
    "Dependencies: with `Soft`, the default there, the body of a failed step goes on to the next step. Here a failed"
    " step ends the pipeline, and a failed member of an Ensemble is left out."
)
OF_BODIES: Final = (
    "Bodies: KServe passes whole JSON bodies. Here a step receives the field `predictions` of the response before it,"
    " as `instances` with `mapPredictionsToInstances`. If a server has the Open Inference Protocol, or if its pool"
    " declares `inputs`, replace these by the names of its inputs and outputs."
)
OF_ENSEMBLES: Final = (
    "Ensembles: the response there has one object for each step. Here it has one output for each step, with its name."
)
OF_RUNS: Final = (
    "Runs: a step starts as soon as its inputs are there, one deadline is for all steps, and a client that leaves"
    " cancels them. KServe's steps run on."
)


def convert(graph: InferenceGraph) -> tuple[dict[str, Any], list[str]]:
    """The configuration as data for YAML, and the differences."""
    conversion = _Conversion(graph)
    pipeline = conversion.pipeline()
    written = {
        "version": 1,
        "pools": list(conversion.pools.values()),
        "models": [*conversion.models.values(), {"name": graph.name, "pipeline": pipeline}],
        "tenants": [{"name": "default", "models": [graph.name]}],
    }
    return written, list(dict.fromkeys([*conversion.differences, OF_RUNS]))


def render(graph: InferenceGraph) -> str:
    """The YAML, with the differences as comments before it."""
    written, differences = convert(graph)
    head = [f"# Imported from KServe's InferenceGraph {printable(graph.name)}. It differs in these points:"]
    for difference in differences:
        head += wrap(printable(difference), 100, initial_indent="# - ", subsequent_indent="#   ")
    return "\n".join(head) + "\n" + yaml.safe_dump(written, sort_keys=False, width=100)


class _Conversion:
    def __init__(self, graph: InferenceGraph) -> None:
        self.pools: dict[str, dict[str, Any]] = {}
        self.models: dict[str, dict[str, Any]] = {}
        self.differences: list[str] = []
        self._graph = graph

    def pipeline(self) -> dict[str, Any]:
        pipeline = self._node(ROOT, "")
        if self._graph.timeout:
            self.differences.append("Timeouts: the time of one call of a service there is the time of each route here.")
        return pipeline

    def _differs(self, text: str) -> None:
        self.differences.append(text)

    # ── nodes ─────────────────────────────────────────────────────────────────────────────────────────

    def _node(self, name: str, prefix: str) -> dict[str, Any]:
        """A node of the graph as a node of a pipeline. `prefix` makes the names of its steps unique."""
        node = self._graph.nodes[name]
        if node.router == "Splitter":
            return {"model": self._splitter(name, node)}
        if node.router == "Switch":
            return self._switch(node, prefix)
        return self._ensemble(node, prefix) if node.router == "Ensemble" else self._sequence(node, prefix)

    def _switch(self, node: GraphNode, prefix: str) -> dict[str, Any]:
        """The branches. A condition that an earlier step has too never selects its step."""
        self._differs(OF_CONDITIONS)
        prefixes = [f"{prefix}{name}_" for name in _names(node)]
        branches: dict[str, dict[str, Any]] = {}
        for step, inner in zip(node.steps[:-1], prefixes, strict=False):
            branch = self._branch(step, inner)
            condition = branch["if"] if "REPLACE_ME" not in branch["if"] else step.condition
            if condition in branches:
                self._differs(f"Step `{step.name}` is left out: an earlier step has its condition.")
            branches.setdefault(condition, branch)
        last = self._target(node.steps[-1], prefixes[-1])
        return {"switch": [*branches.values(), {"else": True, **last}]} if branches else last

    def _sequence(self, node: GraphNode, prefix: str) -> dict[str, Any]:
        first = len(node.steps) - 1
        while first and (node.steps[first].data == "$response" or node.steps[first].condition):
            first -= 1
        for step in node.steps[:first]:
            self._differs(f"Step `{step.name}` is left out: its response does not reach the last step.")
        if node.steps[first].condition:
            self._differs(f"Condition of step `{node.steps[first].name}`: there is no response before it.")
        return {"steps": self._steps(node, prefix, first, first)}

    def _steps(self, node: GraphNode, prefix: str, start: int, first: int) -> list[dict[str, Any]]:
        """The steps of a sequence from `start`. `first` is its first step."""
        steps: list[dict[str, Any]] = []
        names = [prefix + name for name in _names(node)]
        for index in range(start, len(node.steps)):
            step, name = node.steps[index], names[index]
            if step.condition and index > start:
                return [*steps, self._conditional(node, prefix, index, first)]
            if not step.is_hard:
                self._differs(OF_DEPENDENCIES)
            entry: dict[str, Any] = {"name": name, **self._target(step, f"{name}_")}
            if index > first and step.data == "$response":
                self._differs(OF_BODIES)
                renamed = {"predictions": "instances"} if step.renames else {}
                outputs = self._outputs(node.steps[index - 1])
                entry["in"] = {renamed.get(each, each): f"{names[index - 1]}.{each}" for each in outputs}
            steps.append(entry)
        return steps

    def _conditional(self, node: GraphNode, prefix: str, index: int, first: int) -> dict[str, Any]:
        """The rest of a sequence from a step with a condition: where it fails, the answer is the response before."""
        names, condition = [prefix + name for name in _names(node)], node.steps[index].condition
        before, field = names[index - 1], condition if _FIELD.fullmatch(condition) else "REPLACE_ME"
        self._differs(OF_CONDITIONS)
        if field != condition:
            self._differs(f"Condition of step `{node.steps[index].name}`: write `{condition}` as an expression.")
        rest = self._steps(node, prefix, index, first)
        answer = {each: f"{before}.{each}" for each in self._outputs(node.steps[index - 1])}
        branches = [{"if": f"has({before}.{field})", "steps": rest}, {"else": True, "out": answer}]
        return {"name": f"{names[index]}_if", "switch": branches}

    def _ensemble(self, node: GraphNode, prefix: str) -> dict[str, Any]:
        self._differs(OF_ENSEMBLES)
        self._differs(OF_BODIES)
        steps: list[dict[str, Any]] = []
        for index, step in enumerate(node.steps):
            name = prefix + _names(node)[index]
            entry = {"name": name, **self._target(step, f"{name}_")}
            if not step.is_hard:
                self._differs(OF_DEPENDENCIES)
                entry["on_error"] = "skip"
            steps.append(entry)
        return {"steps": steps, "out": self._gathered(node, prefix)}

    def _gathered(self, node: GraphNode, prefix: str = "") -> dict[str, str]:
        """The outputs of an Ensemble: the name of the step, or its name and that of each of its outputs."""
        return {
            name if output == "predictions" else f"{name}_{output}": f"{prefix}{name}.{output}"
            for name, step in zip(_names(node), node.steps, strict=True)
            for output in self._outputs(step)
        }

    def _splitter(self, name: str, node: GraphNode) -> str:
        """A model whose route divides its requests by weight."""
        model = f"{self._graph.name}-{name}"
        weights: dict[str, int] = {}
        for step in node.steps:
            pool = self._arm(name, step)
            weights[pool] = weights.get(pool, 0) + step.weight
        arms = [{"pool": pool, "weight": weight} for pool, weight in weights.items()]
        if model not in self.models:
            route: dict[str, Any] = {"split": {"sticky": "request", "arms": arms}} if len(arms) > 1 else {
                "to": arms[0]["pool"]
            }  # fmt: skip
            self.models[model] = {"name": model, "routes": [self._with_timeout(route)]}
            self._differs(
                "Splitters: a split is a route, and its weights are relative. KServe's are shares of 100: what they"
                " leave out is an error there."
            )
        return model

    def _arm(self, name: str, step: InferenceGraphStep) -> str:
        """The pool of a Splitter's step. A node behind it becomes the first service of that node."""
        if not step.node:
            return self._pool(step)
        inner = self._graph.nodes[step.node]
        self._differs(
            f"Splitter `{name}`: its step `{step.name}` is the node `{step.node}`, and a split has pools only. The YAML"
            f" calls the first service of that node: serve the node as a pipeline of its own, and split in the client."
        )
        return self._arm(step.node, inner.steps[0])

    def _branch(self, step: InferenceGraphStep, prefix: str) -> dict[str, Any]:
        written = step.condition.removeprefix("parameters.")
        field = written if _FIELD.fullmatch(written) else "REPLACE_ME"
        if field != written:
            self._differs(f"Condition of step `{step.name}`: write `{step.condition}` as an expression.")
        return {"if": f"has(request.{field})", **self._target(step, prefix)}

    def _outputs(self, step: InferenceGraphStep) -> list[str]:
        """The names of a step's outputs."""
        node = self._graph.nodes.get(step.node)
        if node is None or node.router == "Splitter":
            return ["predictions"]
        if node.router == "Ensemble":
            return list(self._gathered(node))
        return self._outputs(node.steps[-1])

    def _target(self, step: InferenceGraphStep, prefix: str) -> dict[str, Any]:
        return self._node(step.node, prefix) if step.node else {"model": self._model(step)}

    # ── services ──────────────────────────────────────────────────────────────────────────────────────

    def _model(self, step: InferenceGraphStep) -> str:
        pool = self._pool(step)
        self.models.setdefault(pool, {"name": pool, "routes": [self._with_timeout({"to": pool})]})
        return pool

    def _with_timeout(self, route: dict[str, Any]) -> dict[str, Any]:
        return {**route, "timeout": {"total": f"{self._graph.timeout}s"}} if self._graph.timeout else route

    def _pool(self, step: InferenceGraphStep) -> str:
        """The pool of a service, created at its first use."""
        if step.service:
            url = f"http://{step.service}.{self._graph.namespace}.svc.cluster.local"
            return self._add(step.service, url, "kserve-v1", step.service)
        parts = urlsplit(step.url if "//" in step.url else f"http://{step.url}")
        base = f"{parts.scheme}://{parts.netloc}"
        match = _MODEL_URL.fullmatch(parts.path)
        if match is None:
            self._differs(f"Service `{step.url}`: its path is no model's, so the YAML calls the model `{step.name}`.")
        model = match["model"] if match is not None else step.name
        protocol = "oip-http" if parts.path.startswith("/v2/") else "kserve-v1"
        return self._add(model, base, protocol, model)

    def _add(self, wish: str, url: str, protocol: str, model: str) -> str:
        pool = {"protocol": protocol, "endpoints": [url], "model": model}
        for name, other in self.pools.items():
            if _without_name(other) == pool:
                return name
        name, number = wish, 2
        while name in self.pools or name == self._graph.name:
            name, number = f"{wish}-{number}", number + 1
        self.pools[name] = {"name": name, **pool}
        return name


def _names(node: GraphNode) -> list[str]:
    """The names of a node's steps, as ours may be."""
    names: list[str] = []
    for index, step in enumerate(node.steps):
        name = _NOT_A_NAME.sub("_", step.name).strip("_")[:16]
        names.append(f"step{index}" if not name or name[0].isdigit() or name in ("request", *names) else name)
    return names


def _without_name(pool: Mapping[str, Any]) -> dict[str, Any]:
    return {field: value for field, value in pool.items() if field != "name"}
