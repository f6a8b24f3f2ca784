"""The graph of a pipeline for operators: its nodes in the order of the file, and the steps that each step waits for."""

from collections.abc import Iterator
from typing import Any

from config.schema.config import ClientModelConfig, Config
from config.schema.pipelines.outputs import needs
from config.schema.pipelines.pipeline import (
    BranchConfig,
    ListedNodeConfig,
    MemberConfig,
    NodeConfig,
    PipelineConfig,
    StageConfig,
    StepConfig,
)


def graphs_of(config: Config) -> Iterator[dict[str, Any]]:
    """Each pipeline of a configuration."""
    for index, model in enumerate(config.models):
        if model.pipeline is not None:
            nodes = list(_graph(model, model.pipeline))
            yield {"model": model.name, "line": config.line_at(("models", index, "pipeline")), "nodes": nodes}


def _graph(model: ClientModelConfig, pipeline: PipelineConfig) -> Iterator[dict[str, Any]]:
    if pipeline.steps:
        yield from _inside(pipeline, "", None)
        return
    kind = pipeline.kinds()[0]  # a pipeline of one node is recorded under its kind
    root = _described(pipeline, kind, None, kind)
    yield root
    yield from _inside(pipeline, "", kind)


def _inside(node: NodeConfig, path: str, parent: str | None) -> Iterator[dict[str, Any]]:
    """The nodes inside of a node. `path` is its name in metrics and traces, which unnamed nodes add nothing to."""
    waits = dict(zip((step.name for step in node.steps), needs(node.steps), strict=True))
    for index, inner in enumerate(node.nodes()):
        name = _name(inner)
        inner_path = f"{path}.{name}" if path and name else path or name
        id = inner_path if name else f"{parent or path or 'branch'}#{index}"
        described = _described(inner, id, parent, name)
        if isinstance(inner, StepConfig):
            prefix = f"{path}." if path else ""
            described["needs"] = sorted(f"{prefix}{step}" for step in waits[inner.name])
        yield described
        yield from _inside(inner, inner_path, id)


def _described(node: NodeConfig, id: str, parent: str | None, name: str) -> dict[str, Any]:
    return {
        "id": id,
        "parent": parent,
        "name": name,
        "kind": node.kinds()[0],
        "models": [model for _, model in node.placed_models()],
        "condition": _condition(node),
        "each": isinstance(node, StepConfig) and node.each,
        "needs": [],
    }


def _name(node: NodeConfig) -> str:
    if isinstance(node, StepConfig):
        return node.name
    return node.label if isinstance(node, ListedNodeConfig) else ""


def _condition(node: NodeConfig) -> str | None:
    if isinstance(node, BranchConfig):
        return "else" if node.condition is None else f"if {node.condition}"
    if isinstance(node, StageConfig) and node.accept_if is not None:
        return f"accepted if {node.accept_if}"
    return f"weight {node.weight:g}" if isinstance(node, MemberConfig) and node.weight != 1 else None
