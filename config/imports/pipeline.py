"""An InferenceGraph of KServe as our pools and models, and the points in which they differ."""

from __future__ import annotations

import re
from collections.abc import Mapping
from textwrap import wrap
from typing import Any, Final
from urllib.parse import urlsplit

import yaml

from config.imports.inference_graph import ROOT, GraphNode, InferenceGraph, InferenceGraphStep

_MODEL_URL: Final = re.compile(r"/v[12]/models/(?P<model>[^/:]+)(?P<operation>:predict|/infer)?/?")
_FIELD: Final = re.compile(r"[A-Za-z_]\w{0,63}")
_NOT_A_NAME: Final = re.compile(r"[^A-Za-z0-9_]+")
OF_CONDITIONS: Final = (
    'Conditions: gjson tests whether a path of the body exists, so `{"ok": false}` fulfils `ok`. Here a condition is an'
    " expression over tensors and parameters: write each anew, `headrace check` reports their lines. The last branch"
    " takes all other requests, which are 404 there."
)
OF_DEPENDENCIES: Final = (
    "Dependencies: with `Soft`, the default there, the body of a failed step goes on to the next step. Here a failed"
    " step ends the pipeline, and a failed member of an Ensemble is left out."
)
OF_BODIES: Final = (
    "Bodies: KServe passes whole JSON bodies. Here tensors have names: replace `instances` and `predictions` by the"
    " names of the models' inputs and outputs."
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
    head = [f"# Imported from KServe's InferenceGraph {graph.name}. It differs in these points:"]
    for difference in differences:
        head += wrap(difference, 100, initial_indent="# - ", subsequent_indent="#   ")
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
            self._differs(OF_CONDITIONS)
            last = node.steps[-1]
            branches = [self._branch(step, prefix) for step in node.steps[:-1]]
            return (
                {"switch": [*branches, {"else": True, **self._target(last, prefix)}]}
                if branches
                else self._target(last, prefix)
            )
        return self._ensemble(node, prefix) if node.router == "Ensemble" else self._sequence(node, prefix)

    def _sequence(self, node: GraphNode, prefix: str) -> dict[str, Any]:
        steps: list[dict[str, Any]] = []
        first = len(node.steps) - 1
        while first and node.steps[first].data == "$response":
            first -= 1
        for index, step in enumerate(node.steps):
            if index < first:
                self._differs(f"Step `{step.name}` is left out: its response does not reach the last step.")
                continue
            if step.condition:
                self._differs(
                    f"Condition of step `{step.name}`: where `{step.condition}` does not exist in the response before"
                    " it, the sequence ends with that response and the status 500. Here the step runs."
                )
            if not step.is_hard:
                self._differs(OF_DEPENDENCIES)
            name = prefix + _names(node)[index]
            entry: dict[str, Any] = {"name": name, **self._target(step, f"{name}_")}
            if steps:
                self._differs(OF_BODIES)
                entry["in"] = self._inputs(node.steps[index - 1], steps[-1]["name"])
            steps.append(entry)
        return {"steps": steps}

    def _inputs(self, before: InferenceGraphStep, name: str) -> dict[str, str]:
        """The inputs of a step that receives the response of the step before it."""
        outputs = self._outputs(before)
        renamed = {"predictions": "instances"} if outputs == ["predictions"] else {}
        return {renamed.get(output, output): f"{name}.{output}" for output in outputs}

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
                "Splitters: a split is a route, and its weights are relative. KServe draws from 0 to 100, so that one"
                " request in 101 has no step."
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
        self._differs(f"Condition of step `{step.name}`: write `{step.condition}` as an expression.")
        field = step.condition if _FIELD.fullmatch(step.condition) else "REPLACE_ME"
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
