"""The pipelines of a file, and their nodes with their places."""

from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from typing import NamedTuple

from pydantic import ValidationError

from config.checks.references import targets
from config.code import calls_of_files
from config.document import Node
from config.place import Place
from config.schema.pipelines.outputs import TakesTensors
from config.schema.pipelines.pipeline import NodeConfig, PipelineConfig, StepConfig
from config.schema.pool import PoolConfig
from config.schema.text import is_glob


class PlacedPipeline(NamedTuple):
    """One pipeline of the file."""

    model: str
    """The name of its model."""
    config: PipelineConfig
    place: Place


class Placed(NamedTuple):
    """One node of a pipeline."""

    node: NodeConfig
    place: Place
    visible: tuple[StepConfig, ...]
    """The steps to which the node may refer: those before it, and before the nodes around it."""
    given: frozenset[str] = frozenset()
    """The inputs of the nearest step around the node that has some: the `request` of the node. Empty for the client's
    request."""


def pipelines(root: Node) -> Iterator[PlacedPipeline]:
    """Every pipeline whose own section is valid; the schema reports the others."""
    for model in root["models"]:
        section, name = model["pipeline"], model["name"].text
        if section.value is not None and name is not None:
            try:
                yield PlacedPipeline(name, PipelineConfig.model_validate(section.value, strict=True), section.place)
            except ValidationError:
                continue


def nodes(pipeline: PlacedPipeline) -> Iterator[Placed]:
    """Every node of a pipeline, the outer ones first."""
    return _nodes(Placed(pipeline.config, pipeline.place, ()))


def _nodes(placed: Placed) -> Iterator[Placed]:
    yield placed
    node, seen = placed.node, placed.visible
    given = (frozenset(node.inputs) if isinstance(node, StepConfig) else frozenset()) or placed.given
    for inside, inner in node.placed_nodes():
        yield from _nodes(Placed(inner, (*placed.place, *inside), seen, given))
        if node.steps and isinstance(inner, StepConfig):
            seen = (*seen, inner)


def model_names(root: Node) -> dict[str, str]:
    """Every name of a model, its aliases included, with the model's own name."""
    configured: dict[str, str] = {}
    for model in root["models"]:
        name = model["name"].text
        for written in (name, *model["aliases"].texts()):
            if written is not None and name is not None:
                configured.setdefault(written, name)
    return configured


def model_of(name: str, names: Mapping[str, str]) -> str | None:
    """The model that a name leads to; None for an unknown name."""
    if name in names:
        return names[name]
    return next((own for written, own in names.items() if is_glob(written) and fnmatchcase(name, written)), None)


def takes_tensors(root: Node) -> TakesTensors:
    """Whether a model takes tensors, by the protocols of its pools; for a pipeline, by the model of its answer."""
    configured = model_names(root)
    pools = {pool["name"].text: _serves_tensors(pool) for pool in root["pools"]}
    routed = {
        model["name"].text: any(pools.get(pool.text) for route in model["routes"] for pool in targets(route))
        for model in root["models"]
    }
    piped = {pipeline.model: pipeline.config for pipeline in pipelines(root)}

    def takes(name: str, passed: frozenset[str] = frozenset()) -> bool:
        model = model_of(name, configured)
        if model not in piped or model in passed:
            return bool(routed.get(model))
        deciding = piped[model].deciding_models()
        has_tensors = bool(deciding) or any(calls_of_files(piped[model]))
        return has_tensors and all(takes(each, passed | {model}) for each in deciding)

    return takes


def takes_tensors_at(pool: Node, root: Node) -> bool:
    """Whether the pool of a name takes tensors."""
    return any(_serves_tensors(each) for each in root["pools"] if each["name"].text == pool.text)


def _serves_tensors(pool: Node) -> bool:
    try:
        return PoolConfig.model_validate(pool.value, strict=True).takes_tensors
    except ValidationError:
        return False
