"""The modifier `each`: runs a node once for each row of its inputs, and gathers the outputs."""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import TypeVar

from adapters import offload
from adapters.assembly import join
from adapters.errors import CallerError
from adapters.tensors import ITEM_SIZE, Tensor, element_count, row_ends
from config.schema.pipelines.pipeline import MAX_ROWS, StepConfig
from gateway.features.pipelines.model import described
from gateway.features.pipelines.scope import Bound, Estimate, Output, PipelineNode, StepScope
from gateway.features.pipelines.values import UnusableValueError, Value, Values

T = TypeVar("T")
R = TypeVar("R")


def row_count(inputs: Values) -> int:
    """The number of rows, which is the same for all tensors and lists. Raises `UnusableValueError`."""
    counts = {name: _count(value) for name, value in inputs.items() if isinstance(value, Tensor | list)}
    if not counts:
        raise UnusableValueError("no input has rows: `each` needs a tensor or a list")
    if len(set(counts.values())) > 1:
        shown = ", ".join(f"`{name}` {count}" for name, count in counts.items())
        raise UnusableValueError(f"the inputs differ in their rows: {shown}")
    return next(iter(counts.values()))


def _count(value: Tensor | list[Value]) -> int:
    if isinstance(value, list):
        return len(value)
    if not value.shape:
        raise UnusableValueError(f"`{value.name}` has no dimension of rows")
    return value.shape[0]


async def rows_of(inputs: Values, count: int) -> Sequence[Values]:
    """The inputs of each row. Values other than tensors and lists are the same for all rows."""
    rows: list[dict[str, Value]] = [{} for _ in range(count)]
    for name, value in inputs.items():
        parts = await _split(value, count) if isinstance(value, Tensor) else value if isinstance(value, list) else None
        for index, row in enumerate(rows):
            row[name] = value if parts is None else parts[index]
    return rows


async def _split(tensor: Tensor, count: int) -> list[Tensor]:
    shape, data = (1, *tensor.shape[1:]), memoryview(tensor.data)
    if not count:
        return []
    ends: Sequence[int]
    if tensor.datatype == "BYTES":
        elements = element_count(tensor.shape)
        try:
            ends = await offload.run(len(data), row_ends, data, elements, count, tensor.name) if data else [0] * count
        except CallerError as error:
            raise UnusableValueError(error.message) from None
    else:
        width = element_count(shape) * ITEM_SIZE[tensor.datatype]
        if len(data) != width * count:
            raise UnusableValueError(f"`{tensor.name}` has {len(data)} bytes, which do not fit its shape")
        ends = [width * (index + 1) for index in range(count)]
    starts = [0, *ends[:-1]]
    return [
        Tensor(tensor.name, tensor.datatype, shape, data[start:end]) for start, end in zip(starts, ends, strict=True)
    ]


async def gathered(outputs: Sequence[Values]) -> dict[str, Value]:
    """The outputs of all rows: tensors joined along their first dimension, other values as lists.

    Raises `UnusableValueError` for rows that do not fit together.
    """
    if not outputs:
        return {}
    names = list(outputs[0])
    if any(list(output) != names for output in outputs):
        raise UnusableValueError("the outputs of the rows differ in their names")
    return {name: await joined(name, [output[name] for output in outputs]) for name in names}


async def joined(name: str, values: Sequence[Value]) -> Value:
    """One value from those of the rows."""
    tensors = [value for value in values if isinstance(value, Tensor)]
    if not tensors:
        return list(values)
    first = tensors[0]
    for tensor in tensors:
        if (tensor.datatype, tensor.shape[1:]) != (first.datatype, first.shape[1:]) or len(tensors) != len(values):
            raise UnusableValueError(f"the rows of `{name}` differ in datatype or shape")
    rows = sum(tensor.shape[0] if tensor.shape else 1 for tensor in tensors)
    return Tensor(name, first.datatype, (rows, *first.shape[1:]), await join([tensor.data for tensor in tensors]))


class NoRows:
    """Empty lists for values of known names, or the outputs of a model of tensors with zero rows."""

    def __init__(self, names: Collection[str] = (), model: str | None = None) -> None:
        self._names = names
        self._model = model
        """The model whose metadata have the datatypes and shapes of the outputs."""

    async def output(self, scope: StepScope) -> Output:
        """The outputs. Raises `CallerError` if no outputs without rows can be made."""
        if self._names:
            return Output({name: [] for name in self._names})
        tensors = [] if self._model is None else (await described(self._model, scope)).outputs
        if not tensors or any(size < 0 for tensor in tensors for size in tensor.shape[1:]):
            message = f"The step `{scope.path}` has no row to compute: its inputs need one or more rows."
            raise CallerError(message, param=next(iter(scope.inputs or {}), None))
        shapes = {tensor.name: (tensor.datatype, (0, *tensor.shape[1:])) for tensor in tensors}
        return Output({name: Tensor(name, datatype, shape, b"") for name, (datatype, shape) in shapes.items()})


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
