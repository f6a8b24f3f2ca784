"""The modifier `each`: runs a node once for each row of its inputs, and gathers the outputs."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from adapters.errors import CallerError
from config.schema.pipelines.pipeline import MAX_ROWS, StepConfig
from gateway.features.pipelines.no_rows import NoRows
from gateway.features.pipelines.rows import gathered, row_count, rows_of
from gateway.features.pipelines.scope import Bound, Estimate, Output, PipelineNode, StepScope
from gateway.features.pipelines.values import UnusableValueError, Values

T = TypeVar("T")
R = TypeVar("R")


async def for_each(rows: Sequence[T], run: Callable[[T], Awaitable[R]], at_once: int) -> list[R]:
    """The results of all rows in their order, `at_once` at a time. Raises the first failure, which ends the others."""
    places = asyncio.Semaphore(at_once)

    async def one(row: T) -> R:
        async with places:
            return await run(row)

    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(one(row)) for row in rows]
    except BaseExceptionGroup as failures:
        raise failures.exceptions[0] from None
    return [task.result() for task in tasks]


class EachNode:
    """One run of a node for each row, at most `at_most` of the step at the same time.

    Tensors are split along their first dimension, which each part keeps with the length 1, and lists by their entries.
    The first failure ends the runs that are under way. A mistake in the rows is the caller's; the step makes it that of
    an earlier step if the rows come from there.
    """

    def __init__(self, config: StepConfig, node: PipelineNode, no_rows: NoRows, *, reads_request: bool) -> None:
        self._node = node
        self._at_once = config.at_most
        self._most = config.max_rows or MAX_ROWS
        self._expected = config.max_rows or 1
        self._no_rows = no_rows
        self._reads_request = reads_request
        """Whether the rows are those of the client's request."""

    async def run(self, scope: StepScope) -> Output:
        inputs = scope.inputs or {}
        try:
            count = row_count(inputs)
            self._check(count, inputs)
            rows = await rows_of(inputs, count)
        except UnusableValueError as error:
            raise CallerError(f"The step `{scope.path}` cannot use its input: {error}.") from None
        if not rows:
            return await self._no_rows.output(scope)

        async def of_row(row: Values) -> Values:
            return await (await self._node.run(scope.inner(inputs=row))).read()

        outputs = await for_each(rows, of_row, self._at_once)
        try:
            return Output(await gathered(outputs))
        except UnusableValueError as error:
            raise scope.fail(error) from None

    def _check(self, count: int, inputs: Values) -> None:
        if count > self._most:
            name = next(iter(inputs))
            raise UnusableValueError(f"`{name}` has {count} rows, and {self._most} at most are computed one by one")

    def bound(self, estimate: Estimate) -> Bound:
        """The bound of all rows: those of the client's request, else `max_rows`; one row if neither is known."""
        rows = min(estimate.rows, self._most) if self._reads_request else self._expected
        return self._node.bound(estimate.of_rows(1)).times(max(rows, 1))
