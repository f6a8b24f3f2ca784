"""The conditions of nodes: compiled when the configuration is loaded, evaluated for each request."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from adapters.errors import CallerError, StepFailed
from config.expressions import BOOL, MISSING, Expression, ExpressionError, Variables, compile_expression
from config.expressions.types import Path
from gateway.features.pipelines.arrays import array_of
from gateway.features.pipelines.scope import REQUEST, StepScope
from gateway.features.pipelines.values import UnusableValueError, Value, ValueAbsent, Values


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
