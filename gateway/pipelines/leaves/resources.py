"""Prepares what the nodes of a configuration need, before the configuration is in force."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from config.schema.config import Config
from config.schema.pipelines.pipeline import NodeConfig, StepConfig
from gateway.pipelines.leaves.build import KINDS
from gateway.traffic.member import FleetError


class _PlacedNode(NamedTuple):
    """A node, its path for messages, and the names of its inputs; None if it receives the request as it is."""

    node: NodeConfig
    path: str
    inputs: frozenset[str] | None


def prepare(config: Config) -> None:
    """Load what the nodes need, once. Raises `FleetError`. Blocks: call it in a thread."""
    check(config)
    for placed in _all_nodes(config):
        for kind, _ in placed.node.placed_leaves():
            if kind in KINDS:
                _load(kind, placed)


def _load(kind: str, placed: _PlacedNode) -> None:
    """Compile a node, so that compiling it again when the configuration takes effect cannot fail."""
    try:
        for section in (placed.node.tokenize, placed.node.detokenize):
            if section is not None:
                from gateway.pipelines.leaves.tokens import load  # needs an extra

                load(section.tokenizer)
        KINDS[kind](None, placed.node)
    except ModuleNotFoundError as error:
        needed = f"`{kind}` needs {error.name}, which an extra installs: pip install 'headrace[pipelines]'"
        raise FleetError(f"{placed.path}: {needed}") from None
    except ValueError as error:
        raise FleetError(f"{placed.path}: {kind}: {error}") from None


def check(config: Config) -> None:
    """Compile the templates of all pipelines. Raises `FleetError`."""
    for placed in _all_nodes(config):
        _templates(placed)


def _all_nodes(config: Config) -> Iterator[_PlacedNode]:
    for model in config.models:
        if model.pipeline is not None:
            yield from _nodes(_PlacedNode(model.pipeline, f"model {model.name}", None))


def _nodes(placed: _PlacedNode) -> Iterator[_PlacedNode]:
    yield placed
    for inner in placed.node.nodes():
        path, inputs = placed.path, placed.inputs
        if isinstance(inner, StepConfig):
            path, inputs = f"{path}, step {inner.name}", frozenset(inner.inputs) or inputs
        yield from _nodes(_PlacedNode(inner, path, inputs))


def _templates(placed: _PlacedNode) -> None:
    """Check the templates of a node. Raises `FleetError`."""
    template, judge = placed.node.template, placed.node.judge
    if template is not None:
        _check(template.sources(), placed.inputs, placed)
    if judge is not None:
        _check([judge.prompt or "{{ question }}"], frozenset(("question", "a", "b")), placed)


def _check(sources: Iterable[str], inputs: frozenset[str] | None, placed: _PlacedNode) -> None:
    try:
        read = _variables(sources)
    except ModuleNotFoundError as error:
        needed = f"a template needs {error.name}, which an extra installs: pip install 'headrace[pipelines]'"
        raise FleetError(f"{placed.path}: {needed}") from None
    except ValueError as error:
        raise FleetError(f"{placed.path}: {error}") from None
    if inputs is not None and (unknown := sorted(read - inputs)):
        shown = ", ".join(sorted(inputs))
        raise FleetError(f"{placed.path}: the template reads `{unknown[0]}`, and the inputs are {shown}")


def _variables(sources: Iterable[str]) -> frozenset[str]:
    """The variables of templates. Raises ValueError with the line of a mistake."""
    from adapters.wire.text.step_template import TemplateInvalid  # needs an extra
    from gateway.pipelines.leaves.template import compiled

    try:
        return frozenset[str]().union(*(compiled(source).variables for source in sources))
    except TemplateInvalid as error:
        raise ValueError(f"line {error.line} of the template: {error}") from None
