"""Types that all parts of a pipeline share: names of steps, references, tensors, expressions, the base of leaves."""

from collections.abc import Iterator
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field as Bounds
from pydantic.json_schema import JsonSchemaValue

from config.schema.section import Section, ShortSection
from config.schema.text import Shape

StepName = Annotated[
    str,
    Shape(r"(?!request$)[A-Za-z_][A-Za-z0-9_]{0,63}", "a step's name: up to 64 letters, digits and _, not `request`"),
]
Reference = Annotated[
    str,
    Shape(r"[A-Za-z_][A-Za-z0-9_]{0,63}\.[^\s\x00-\x1f\x7f]{1,256}", "a reference such as request.image or STEP.NAME"),
]
"""A value of the request, or of an earlier step."""
Field = Annotated[str, Shape(r"[^\x00-\x1f\x7f]{1,256}", "the name of an input or an output")]
Expression = Annotated[str, Shape(r"[\s\S]{1,4096}", "an expression such as `score >= 0.8`")]


class OnErrorConfig(ShortSection):
    """Action of the pipeline after the failure of a step. ``fail`` and ``skip`` are written without braces."""

    short = "action"
    short_schema: ClassVar[JsonSchemaValue] = {"enum": ["fail", "skip"], "type": "string"}

    action: Literal["fail", "skip"] = "fail"
    """``fail``: the whole pipeline fails. ``skip``: the step has no values, and steps that need them are skipped."""
    use: dict[Field, Any] | None = None
    """Values of the step in place of its own, by the name of the output."""


class PipelineTensorConfig(Section):
    """An input or an output of a pipeline, a model or a step."""

    name: Field
    """Name of the tensor."""
    datatype: Literal[
        "BOOL", "UINT8", "UINT16", "UINT32", "UINT64", "INT8", "INT16", "INT32", "INT64",
        "FP16", "FP32", "FP64", "BF16", "BYTES",
    ]  # fmt: skip
    """Datatype of the Open Inference Protocol."""
    shape: tuple[Annotated[int, Bounds(ge=-1)], ...]
    """Shape with the batch dimension, where there is one; -1 is any length."""


Place = tuple[str | int, ...]
"""A place inside a node, such as ``("guard", "model")``."""


class LeafConfig(Section):
    """A kind of node that contains no other nodes. Its inputs are those of its step, or the fields of the request."""

    def placed_models(self) -> Iterator[tuple[Place, str]]:
        """The models that the node calls, each with its place in this section."""
        return iter(())

    def placed_conditions(self) -> Iterator[tuple[Place, str]]:
        """The conditions of the node, each with its place in this section."""
        return iter(())

    def fixed_inputs(self) -> frozenset[str]:
        """The names of the inputs, if the kind of the node fixes them."""
        return frozenset()

    def needs_inputs(self) -> bool:
        """Whether the step of the node must have inputs."""
        return False

    def sends_values(self) -> bool:
        """Whether the models receive requests like those of the pipeline: of tensors, or chats."""
        return True
