"""A pipeline: a graph of steps that answers a model's requests."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal, Self

from pydantic import Field as Bounds
from pydantic import model_validator

from config.schema.pipelines.parts import Field, OnErrorConfig, Reference, StepName
from config.schema.section import Section
from config.schema.text import Name
from config.schema.units import Duration

Place = tuple[str | int, ...]
"""A place inside a node, such as ``("steps", 0)``."""
KINDS = ("model", "steps")
"""The fields of a node that say what it does. A node has exactly one of them."""


class NodeConfig(Section):
    """One node of a pipeline: exactly one of its kinds."""

    model: Name | None = None
    """Model of this file that answers: its routes, limits, prices, retries, caches and queues apply."""
    steps: tuple[StepConfig, ...] = ()
    """Steps that run as soon as the values that they need are there."""
    out: dict[Field, Reference] = Bounds({})
    """With ``steps``: outputs, by name, each of a step. When absent, the last step's answer as it is."""

    @model_validator(mode="after")
    def _one_kind(self) -> Self:
        kinds = self.kinds()
        if len(kinds) != 1:
            given = f"has {' and '.join(kinds)}" if kinds else "does nothing"
            raise ValueError(f"{given}: give exactly one of {', '.join(KINDS)}")
        if self.out and not self.steps:
            raise ValueError("`out` belongs to `steps`")
        return self

    def kinds(self) -> list[str]:
        """The kinds that are given."""
        return [kind for kind in KINDS if getattr(self, kind)]

    def models(self) -> Iterator[str]:
        """Every model that the node may call."""
        if self.model is not None:
            yield self.model
        for node in self.nodes():
            yield from node.models()

    def nodes(self) -> Iterator[NodeConfig]:
        """The nodes directly inside this one."""
        return (node for _, node in self.placed_nodes())

    def placed_nodes(self) -> Iterator[tuple[Place, NodeConfig]]:
        """The nodes directly inside this one, each with its place in it."""
        for index, step in enumerate(self.steps):
            yield ("steps", index), step

    def references(self) -> Iterator[tuple[Place, str]]:
        """The references of the node itself to values around it, each with its place."""
        return iter(())


class StepConfig(NodeConfig):
    """One step: a node with a name."""

    name: StepName
    """Name of the step, for references, logs and metrics."""
    inputs: dict[Field, Reference] = Bounds({}, alias="in")
    """Inputs of the step, by name. When absent, the step receives the pipeline's own request."""
    each: bool = False
    """Runs the step once for each row of its inputs, and gathers the outputs in the order of the rows."""
    at_most: int = Bounds(8, ge=1, le=64)
    """With ``each``: rows that are computed at once."""
    on_error: OnErrorConfig = OnErrorConfig()
    """What the pipeline does after the step has failed, with all of its retries and fallbacks."""
    at_least: Duration | None = None
    """Time that the step needs. With less left until the deadline, it fails at once."""

    def references(self) -> Iterator[tuple[Place, str]]:
        for name, reference in self.inputs.items():
            yield ("in", name), reference


class PipelineTensorConfig(Section):
    """An input or an output of a pipeline."""

    name: Field
    """Name of the tensor."""
    datatype: Literal[
        "BOOL", "UINT8", "UINT16", "UINT32", "UINT64", "INT8", "INT16", "INT32", "INT64",
        "FP16", "FP32", "FP64", "BF16", "BYTES",
    ]  # fmt: skip
    """Datatype of the Open Inference Protocol."""
    shape: tuple[Annotated[int, Bounds(ge=-1)], ...]
    """Shape with the batch dimension, where there is one; -1 is any length."""


class PipelineConfig(NodeConfig):
    """Steps that answer a model's requests. A node alone, such as ``{model: ...}``, is a pipeline of one step."""

    deadline: Duration | None = None
    """Time for the whole pipeline. Each step gets what is left of it, and of the client's own deadline."""
    inputs: tuple[PipelineTensorConfig, ...] = ()
    """Inputs for clients of tensors. When absent, they are those of the models that receive them."""
    outputs: tuple[PipelineTensorConfig, ...] = ()
    """Outputs for clients of tensors. When absent, they are those of the models that produce them."""


NodeConfig.model_rebuild()
StepConfig.model_rebuild()
PipelineConfig.model_rebuild()
