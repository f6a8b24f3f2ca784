"""Compiles the pipelines of a configuration: the registry of the kinds of nodes.

A new kind of node is a field of `NodeConfig`, a module here with a class that implements `scope.PipelineNode`, and an
entry of `KINDS`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from config.schema.config import Config
from config.schema.pipelines.pipeline import NodeConfig, StepConfig
from gateway.pipelines.each import EachNode
from gateway.pipelines.executor import Pipeline
from gateway.pipelines.model import ModelNode
from gateway.pipelines.scope import REQUEST, PipelineNode
from gateway.pipelines.sequence import SequenceNode
from gateway.pipelines.step import Step


class Builder:
    """Compiles the nodes of one configuration."""

    def __init__(self, config: Config, takes_tensors: Callable[[str], bool], clock: Callable[[], float]) -> None:
        self.takes_tensors = takes_tensors
        """Whether the model of a name takes tensors."""
        self.clock = clock
        self._config = config

    def pipelines(self) -> dict[str, Pipeline]:
        """Every pipeline, by the name of its model."""
        return {
            model.name: Pipeline(model.name, model.pipeline, self.node(model.pipeline), self.clock)
            for model in self._config.models
            if model.pipeline is not None
        }

    def node(self, config: NodeConfig) -> PipelineNode:
        """Compile one node."""
        return KINDS[config.kinds()[0]](self, config)


def _model(builder: Builder, config: NodeConfig) -> PipelineNode:
    assert config.model is not None
    return ModelNode(config.model, takes_tensors=builder.takes_tensors(config.model))


def _steps(builder: Builder, config: NodeConfig) -> PipelineNode:
    read = {name for step in config.steps for name in references(step)} | set(_steps_of(config.out.values()))
    return SequenceNode([_step(builder, step, is_read=step.name in read) for step in config.steps], config.out)


def _step(builder: Builder, config: StepConfig, *, is_read: bool) -> Step:
    node = builder.node(config)
    if config.each:
        node = EachNode(node, at_once=config.at_most)
    return Step(config, node, references(config), is_read=is_read)


def references(config: NodeConfig) -> frozenset[str]:
    """The steps that a node refers to, itself and in all of its inner nodes."""
    found = set(_steps_of(config.out.values()))
    found.update(_steps_of(reference for _, reference in config.references()))
    for inner in config.nodes():
        found |= references(inner)
    return frozenset(found - {step.name for step in config.steps})


def _steps_of(written: Iterable[str]) -> Iterator[str]:
    return (name for reference in written if (name := reference.partition(".")[0]) != REQUEST)


KINDS: Mapping[str, Callable[[Builder, NodeConfig], PipelineNode]] = {
    "model": _model,
    "steps": _steps,
}
