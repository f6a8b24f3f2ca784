"""A pipeline as lines of text: each step, its inputs, and the path of one request as far as it is known in advance."""

from collections.abc import Iterator, Mapping
from pathlib import PurePath

from config.expressions import BOOL, CompileError, ExpressionError, Variable, Variables, compile_expression
from config.expressions.parser import names
from config.expressions.types import FLOAT, INT, STRING, Path, Value, ValueType
from config.schema.pipelines.outputs import needs
from config.schema.pipelines.pipeline import (
    BranchConfig,
    ListedNodeConfig,
    NodeConfig,
    PipelineConfig,
    StageConfig,
    StepConfig,
)
from config.schema.units import format_duration
from policies.facts import Facts

Pools = Mapping[str, str]
"""By model: its pools or `pipeline`, as text."""
_TYPES: Mapping[type, ValueType] = {bool: BOOL, int: INT, float: FLOAT, str: STRING}


def drawn(pipeline: PipelineConfig, facts: Facts, pools: Pools) -> tuple[str, ...]:
    """The lines of a pipeline, in the order of the file. A part of a step is indented below it."""
    return tuple(_Drawing(facts, pools).node(pipeline, 0))


class _Drawing:
    """Draws for one request."""

    def __init__(self, facts: Facts, pools: Pools) -> None:
        self._pools = pools
        self._values: dict[Path, Value] = {
            ("request", "prompt_tokens"): facts.prompt_tokens,
            ("request", "stream"): facts.stream,
            ("request", "n"): facts.n,
            ("request", "model"): facts.model,
        }
        for name, value in (("user", facts.user), ("max_tokens", facts.max_tokens)):
            if value is not None:
                self._values[("request", name)] = value
        self._variables = Variables({path: Variable(_TYPES[type(value)]) for path, value in self._values.items()})

    def node(self, node: NodeConfig, depth: int) -> Iterator[str]:
        """The parts of a node."""
        if isinstance(node, PipelineConfig) and (bounds := _bounds(node)):
            yield bounds
        has_drafts = any(node.placed_drafts())
        if isinstance(node, PipelineConfig) and (node.model is not None or has_drafts or not any(node.nodes())):
            yield self._kind_and_models(node)
            depth += has_drafts
        waits = dict(zip((step.name for step in node.steps), needs(node.steps), strict=True))
        chosen = self._chosen(node)
        for index, inner in enumerate(node.nodes()):
            yield "  " * depth + self._title(inner, waits) + self._condition(inner, index, chosen)
            yield from self.node(inner, depth + 1)
        if node.out:
            yield "  " * depth + "out: " + ", ".join(f"{name} = {reference}" for name, reference in node.out.items())

    def _title(self, node: NodeConfig, waits: Mapping[str, frozenset[str]]) -> str:
        if isinstance(node, StepConfig):
            rows = "row" if node.max_rows is None else f"of at most {node.max_rows} rows"
            each = f" for each {rows}" if node.each else ""
            whole = "the answer" if node.guard is not None and node.guard.on == "answer" else "the request"
            inputs = ", ".join(f"{name} = {reference}" for name, reference in node.inputs.items()) or whole
            read = {reference.partition(".")[0] for reference in node.inputs.values()}
            later = sorted(waits[node.name] - read)
            after = f", after {', '.join(later)}" if later else ""
            return f"{node.name}: {self._kind_and_models(node)}{each} ← {inputs}{after}{_on_error(node)}"
        name = node.name if isinstance(node, ListedNodeConfig) and node.name else ""
        return f"{name}: {self._kind_and_models(node)}" if name else self._kind_and_models(node)

    def _kind_and_models(self, node: NodeConfig) -> str:
        kind = node.kinds()[0]
        if node.ensemble is not None:
            kind = f"ensemble, {node.ensemble.combine} of {node.ensemble.least} to {len(node.ensemble.members)}"
        if node.call is not None and node.call.file is not None:
            kind = f"call {node.call.function} of {PurePath(node.call.file.path).name}"
        for drafts, section in node.placed_drafts():
            kind = f"{drafts} of {len(section.of) * section.n} drafts" + (" by" if node.judge is not None else "")
        models = [f"{model} ({self._pools.get(model, '?')})" for _, model in node.placed_models()]
        return f"{kind} {', '.join(models)}".rstrip()

    def _chosen(self, node: NodeConfig) -> int | None:
        """The branch of a switch that takes the request; None if that depends on an answer."""
        for index, branch in enumerate(node.switch):
            holds = True if branch.condition is None else self._holds(branch.condition)
            if holds is None:
                return None
            if holds:
                return index
        return None

    def _condition(self, node: NodeConfig, index: int, chosen: int | None) -> str:
        if isinstance(node, StageConfig) and node.accept_if is not None:
            return f", accepted if {node.accept_if}"
        if not isinstance(node, BranchConfig):
            return ""
        written = "else" if node.condition is None else f"if {node.condition}"
        if chosen is None:
            return f", {written}"
        return f", {written}: {'taken' if index == chosen else 'not taken'}"

    def _holds(self, text: str) -> bool | None:
        """Whether a condition holds for the request; None if it depends on unknown values."""
        if any(path not in self._values for path in names(text)):
            return None
        try:
            return bool(compile_expression(text, self._variables, BOOL).evaluate(self._values))
        except (CompileError, ExpressionError):
            return None


def _bounds(pipeline: PipelineConfig) -> str:
    """The deadline and the budget of a pipeline; empty without both."""
    parts = [] if pipeline.deadline is None else [f"within {format_duration(pipeline.deadline)}"]
    if (budget := pipeline.budget) is not None:
        amounts = ([] if budget.tokens is None else [f"{budget.tokens} tokens"]) + (
            [] if budget.spend is None else [str(budget.spend)]
        )
        parts.append(f"for at most {' and '.join(amounts)}")
    return ", ".join(parts)


def _on_error(step: StepConfig) -> str:
    """What follows a failure of a step; empty if it fails the pipeline."""
    if step.on_error.use is not None:
        return f", else {', '.join(step.on_error.use)} of the file"
    return ", skipped if it fails" if step.on_error.action == "skip" else ""
