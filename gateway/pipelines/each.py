"""The modifier `each`: runs a node once for each row of its inputs, and gathers the outputs."""

from __future__ import annotations

import asyncio

from gateway.pipelines.rows import gathered, row_count, rows_of
from gateway.pipelines.scope import Bound, Estimate, Output, PipelineNode, StepScope
from gateway.pipelines.values import UnusableValueError, Values

MAX_ROWS = 1024


class EachNode:
    """One run of a node for each row, at most `at_once` at the same time.

    Tensors are split along their first dimension, which each part keeps with the length 1, and lists by their entries.
    The first failure ends the runs that are under way.
    """

    def __init__(self, node: PipelineNode, *, at_once: int) -> None:
        self._node = node
        self._at_once = at_once

    async def run(self, scope: StepScope) -> Output:
        inputs = scope.inputs or {}
        try:
            count = row_count(inputs)
            if count > MAX_ROWS:
                raise UnusableValueError(f"it has {count} rows, and {MAX_ROWS} at most are computed one by one")
            rows = rows_of(inputs, count)
        except UnusableValueError as error:
            raise scope.fail(error) from None
        places, outputs = asyncio.Semaphore(self._at_once), list[Values](({},) * count)

        async def one(index: int, row: Values) -> None:
            async with places:
                output = await self._node.run(scope.inner(inputs=row))
                outputs[index] = await output.read()

        try:
            async with asyncio.TaskGroup() as group:
                for index, row in enumerate(rows):
                    group.create_task(one(index, row))
        except BaseExceptionGroup as failures:
            raise failures.exceptions[0] from None
        try:
            return Output(gathered(outputs))
        except UnusableValueError as error:
            raise scope.fail(error) from None

    def bound(self, estimate: Estimate) -> Bound:
        return self._node.bound(estimate)
