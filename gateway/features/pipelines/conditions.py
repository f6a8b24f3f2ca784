"""The conditions of nodes, and the node `switch`: the first branch whose condition holds answers.

Conditions are compiled when the configuration is loaded, and evaluated for each request.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from adapters.errors import CallerError, StepFailed
from config.expressions import BOOL, MISSING, Expression, ExpressionError, Variables, compile_expression
from config.expressions.types import Path
from gateway.features.pipelines.scope import REQUEST, Bound, Estimate, FreeNode, Output, PipelineNode, StepScope
from gateway.features.pipelines.values import UnusableValueError, Value, ValueAbsent, Values, array_of


class Condition:
    """A condition on values of the request, of earlier steps, and on a node's own values."""

    __slots__ = ("_expression",)

    def __init__(self, text: str, variables: Variables) -> None:
        self._expression: Expression = compile_expression(text, variables, BOOL)

    @property
    def reads_logprobs(self) -> bool:
        """Whether the condition reads log-probabilities, which a server must be requested to report."""
        return any("logprob" in path for path in self._expression.references)

    async def accepts(self, scope: StepScope, own: Values) -> bool:
        """Whether the condition holds. One without a result, because a value is absent or NaN, does not hold."""
        try:
            return await self.holds(scope, own)
        except (StepFailed, CallerError):
            return False

    async def holds(self, scope: StepScope, own: Values | None = None) -> bool:
        """Evaluate the condition. `own` are the node's own values.

        Raises `StepFailed` for a condition without a result, or `CallerError` if it reads the client's request only.
        """
        try:
            values = {path: await _value(path, scope, own) for path in self._expression.references}
            return bool(self._expression.evaluate(values))
        except (ExpressionError, UnusableValueError) as error:
            place = f" of the step `{scope.path}`" if scope.path else ""
            message = f"The condition `{self._expression.text}`{place} has no result: {error}."
            if scope.inputs is None and all(path[0] == REQUEST for path in self._expression.references):
                raise CallerError(message, param=".".join(self._expression.references[0][1:])) from None
            raise StepFailed(message, step=scope.path) from None


async def _value(path: Path, scope: StepScope, own: Values | None) -> Any:
    """The value of a variable, as expressions read it."""
    if own is not None and path[0] in own:
        return _inside(own, path)
    if path[0] == REQUEST:
        try:
            return _readable(await scope.value(".".join(path)))
        except ValueAbsent:
            return MISSING
    if path[0] in scope.outputs:
        return _inside(scope.outputs[path[0]].values, path[1:])
    return MISSING


def _inside(values: Values, path: Path) -> Any:
    value: Value = values
    for part in path:
        if not isinstance(value, Mapping) or part not in value:
            return MISSING
        value = value[part]
    return _readable(value)


def _readable(value: Value) -> Any:
    return array_of(value)


class Branch(NamedTuple):
    """A node, and the condition under which it answers; None for the last branch, which takes the rest."""

    condition: Condition | None
    node: PipelineNode


class SwitchNode:
    """Evaluates the conditions in the order of the file. Only the chosen branch runs."""

    def __init__(self, branches: Sequence[Branch]) -> None:
        self._branches = branches

    async def run(self, scope: StepScope) -> Output:
        for index, (condition, node) in enumerate(self._branches):
            if condition is None or await condition.holds(scope):
                if scope.call.step is not None:
                    scope.call.step.branch = index
                return await node.run(scope)
        raise StepFailed(f"No branch of the step `{scope.path}` matches: add `else: true`.", step=scope.path)

    def bound(self, estimate: Estimate) -> Bound:
        bound = Bound()
        for branch in self._branches:
            bound = bound.or_(branch.node.bound(estimate))
        return bound


class ValuesNode(FreeNode):
    """A branch that calls no model: its outputs are values of the request or of earlier steps."""

    def __init__(self, out: Mapping[str, str]) -> None:
        self._out = out

    async def run(self, scope: StepScope) -> Output:
        return Output({name: await scope.value(reference) for name, reference in self._out.items()})
