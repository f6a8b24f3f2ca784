"""The node `switch`: the first branch whose condition holds answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from adapters.errors import StepFailed
from gateway.features.pipelines.conditions import Condition
from gateway.features.pipelines.scope import Bound, Estimate, Output, PipelineNode, StepScope


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


class ValuesNode:
    """A branch that calls no model: its outputs are values of the request or of earlier steps."""

    def __init__(self, out: Mapping[str, str]) -> None:
        self._out = out

    async def run(self, scope: StepScope) -> Output:
        return Output({name: await scope.value(reference) for name, reference in self._out.items()})

    def bound(self, estimate: Estimate) -> Bound:
        return Bound()
