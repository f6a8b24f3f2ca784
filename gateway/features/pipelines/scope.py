"""The input and the output of a node of a pipeline."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol

from adapters.base import Answer
from adapters.call import Call, StepTrace
from adapters.errors import StepFailed
from gateway.features.pipelines.answers import values_of
from gateway.features.pipelines.request import PipelineRequest
from gateway.features.pipelines.values import UnusableValueError, Value, Values

REQUEST = "request"
"""The name of the pipeline's own request in references."""


class Output:
    """The result of a node: values by name, or the answer of a model, whose values are decoded on demand.

    The answer may be a stream that has begun, if the scope of the node is live.
    """

    __slots__ = ("_check", "_values", "answer", "has_names", "is_forwarded", "trace")

    def __init__(
        self,
        values: Values | None = None,
        answer: Answer | None = None,
        *,
        is_forwarded: bool = True,
        has_names: bool = False,
        check: Callable[[Values], None] | None = None,
    ) -> None:
        """`check` raises `BackendError` for values of the answer that do not fit a declaration."""
        self._check = check
        self.answer = answer
        self.has_names = has_names
        """Whether a client needs the names of the values, even of a single one: the others may be absent."""
        self.is_forwarded = is_forwarded
        """Whether the model has received the client's own request, so that the answer has the outputs that the client
        requests, in their form."""
        self.trace: StepTrace | None = None
        """The record of the part that produced the output."""
        self._values = values

    async def read(self) -> Values:
        """Decode the values of the answer. Raises `StepFailed` for an answer without values."""
        if self._values is None:
            assert self.answer is not None
            values = await values_of(self.answer)
            if self._check is not None:
                self._check(values)
            self._values = values
        return self._values

    @property
    def values(self) -> Values:
        """The values, which `read` has decoded."""
        assert self._values is not None
        return self._values

    async def aclose(self) -> None:
        """Cancel an answer that has no reader."""
        if self.answer is not None:
            await self.answer.aclose()


@dataclass(slots=True)
class StepScope:
    """The values that one node may read: the client's request, its own inputs, and the outputs of earlier steps."""

    pipeline: str
    request: PipelineRequest
    """The pipeline's own request."""
    call: Call
    clock: Callable[[], float]
    inputs: Values | None = None
    """The inputs of the node, by name; None if it receives the unchanged request."""
    outputs: Mapping[str, Output] = field(default_factory=dict)
    """The outputs of the steps that the node refers to, by step."""
    path: str = ""
    """The names of the steps around the node, joined by dots."""
    is_live: bool = False
    """Whether the answer of the node is the client's, so that it may be a stream."""

    def inner(
        self,
        *,
        call: Call | None = None,
        inputs: Values | None = None,
        outputs: Mapping[str, Output] | None = None,
        name: str = "",
        is_live: bool = False,
    ) -> "StepScope":
        """The scope of a node inside this one."""
        inputs = self.inputs if inputs is None else inputs
        outputs = self.outputs if outputs is None else outputs
        path = f"{self.path}.{name}" if self.path and name else self.path or name
        return StepScope(self.pipeline, self.request, call or self.call, self.clock, inputs, outputs, path, is_live)

    async def value(self, reference: str) -> Value:
        """The value of a reference. Raises `CallerError` for an input that the request does not have."""
        step, _, name = reference.partition(".")
        if step != REQUEST:
            values = self.outputs[step].values
            if name not in values:
                shown = ", ".join(f"`{each}`" for each in values) or "none"
                raise StepFailed(f"The step `{step}` has no output `{name}`: it has {shown}.", step=step)
            return values[name]
        if self.inputs is None:
            return await self.request.value(name)
        if name not in self.inputs:
            raise StepFailed(f"The enclosing steps have no input `{name}`.", step=self.path)
        return self.inputs[name]

    def fail(self, error: UnusableValueError) -> StepFailed:
        """The failure of a node whose inputs have no usable value."""
        return StepFailed(f"The step `{self.path}` cannot use its input: {error}.", step=self.path)


@dataclass(frozen=True, slots=True)
class Bound:
    """An upper bound of a node's usage: tokens, rows, and the cost in picos."""

    tokens: float = 0
    rows: float = 0
    picos: int = 0

    def __add__(self, other: "Bound") -> "Bound":
        return Bound(self.tokens + other.tokens, self.rows + other.rows, self.picos + other.picos)

    def times(self, count: int) -> "Bound":
        """The bound of so many runs."""
        return Bound(self.tokens * count, self.rows * count, self.picos * count)

    def or_(self, other: "Bound") -> "Bound":
        """The bound of two nodes of which one runs."""
        return Bound(max(self.tokens, other.tokens), max(self.rows, other.rows), max(self.picos, other.picos))


@dataclass(frozen=True, slots=True)
class Estimate:
    """Returns the bound of one call of a model, for a request of a size: its rows, tokens and choices."""

    of_model: "Callable[[str, Estimate], Bound]"
    rows: int
    prompt: int = 0
    """Tokens of the prompt."""
    output: int = 0
    """Tokens of the longest answer, of all choices."""
    choices: int = 0

    def __call__(self, model: str) -> Bound:
        return self.of_model(model, self)

    def of_rows(self, rows: int) -> "Estimate":
        """The same for another number of rows."""
        return replace(self, rows=rows)

    def of_text(self, prompt: int, output: int) -> "Estimate":
        """The same for a text of the gateway's own with one answer."""
        return Estimate(self.of_model, 1, prompt, output, 1)


class FreeNode:
    """A node that calls no model, so that it uses nothing of the limits."""

    def bound(self, estimate: Estimate) -> Bound:
        """An upper bound of the node's usage: none."""
        return Bound()


def total(nodes: "Iterable[PipelineNode]", estimate: Estimate) -> Bound:
    """The bound of nodes that all run."""
    return sum((node.bound(estimate) for node in nodes), Bound())


class PipelineNode(Protocol):
    """One node of a pipeline. Nodes are compiled once, and shared by all requests."""

    async def run(self, scope: StepScope) -> Output:
        """Return the output, or the answer when it begins. Raises `InferenceError`."""

    def bound(self, estimate: Estimate) -> Bound:
        """An upper bound of the node's usage, over its most expensive path."""
