"""A pipeline as lines of text: each step, its inputs, and the steps that it waits for."""

from collections.abc import Iterator

from config.schema.pipelines.pipeline import NodeConfig, PipelineConfig, StepConfig


def drawn(pipeline: PipelineConfig) -> tuple[str, ...]:
    """The lines of a pipeline, in the order of the file. A part of a step is indented below it."""
    return tuple(_lines(pipeline, 0))


def _lines(node: NodeConfig, depth: int) -> Iterator[str]:
    for inner in node.nodes():
        yield "  " * depth + _title(inner)
        yield from _lines(inner, depth + 1)
    if node.out:
        yield "  " * depth + "out: " + ", ".join(f"{name} = {reference}" for name, reference in node.out.items())
    if isinstance(node, PipelineConfig) and node.model is not None:
        yield f"model {node.model}"


def _title(node: NodeConfig) -> str:
    kind = node.kinds()[0]
    what = f"model {node.model}" if node.model is not None else kind
    if not isinstance(node, StepConfig):
        return what
    each = " for each row" if node.each else ""
    inputs = ", ".join(f"{name} = {reference}" for name, reference in node.inputs.items()) or "the request"
    return f"{node.name}: {what}{each} ← {inputs}"
