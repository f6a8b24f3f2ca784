"""Joins requests into batches, and cuts the outputs for each request; a large request is cut into parts first."""

from __future__ import annotations

import asyncio
import functools
import logging
from bisect import bisect_left
from collections.abc import Container, Iterator, Mapping, Sequence
from math import inf
from typing import Any

from adapters.errors import BackendError, InferenceError
from adapters.tensors import Inference, Tensor
from runtimes.tensor.configuration.model_config import ModelConfig
from runtimes.tensor.interfaces import MAX_SELECTED, Array, Batch, Instance, InstanceLost, RowsFailed, Tensors
from runtimes.tensor.off_loop import LARGE
from runtimes.tensor.scheduling.batch_inputs import BatchInputs
from runtimes.tensor.scheduling.dispatcher import Dispatcher
from runtimes.tensor.scheduling.outlet import ResponseOutlet, UnfinishedTensor, joined_uneven, outputs_of, pieces_of
from runtimes.tensor.scheduling.pending import (
    Execution,
    Pending,
    PreparedRequest,
    Recorder,
    for_caller,
    for_row,
    unreadable,
)
from runtimes.tensor.scheduling.responses import Delivery, OrderedDelivery, Responses


class Joint(asyncio.Future[list[Tensor]]):
    """The future of a request that was cut. It ends with its last part, or with the first part that fails; the other
    parts are then withdrawn."""

    def __init__(self, loop: asyncio.AbstractEventLoop, parts: list[Pending], counted: Container[str]) -> None:
        """`counted` are the outputs whose parts may differ in length."""
        super().__init__(loop=loop)
        self._parts = parts
        self._counted = counted
        self._open = len(parts)
        for part in parts:
            part.add_done_callback(self._part_done)

    @property
    def arrived(self) -> float:
        return self._parts[0].arrived

    @property
    def execution(self) -> Execution | None:
        """The batch of its last part."""
        return self._parts[-1].execution

    @property
    def device_seconds(self) -> float:
        """The device time of all parts."""
        return sum(part.device_seconds for part in self._parts)

    def cancel(self, msg: Any | None = None) -> bool:
        if not super().cancel(msg):
            return False
        self._withdraw()
        return True

    def _part_done(self, part: asyncio.Future[list[Tensor]]) -> None:
        self._open -= 1
        error = None if part.cancelled() else part.exception()
        if self.done():
            return
        if error is not None:
            self.set_exception(error)
            self._withdraw()
        elif not self._open:
            try:
                columns = zip(*[p.result() for p in self._parts], strict=True)
                self.set_result(outputs_of([_join(column, self._counted) for column in columns]))
            except BackendError as uneven:
                self.set_exception(uneven)

    def _withdraw(self) -> None:
        for part in self._parts:
            part.cancel()


def _join(pieces: tuple[Tensor, ...], counted: Container[str]) -> Tensor:
    first = pieces[0]
    if any(piece.shape[1:] != first.shape[1:] for piece in pieces):
        if first.name in counted:
            return joined_uneven(pieces)
        raise BackendError(
            f"Output `{first.name}` has another shape for each part of the request; send fewer rows at a time.",
            code="model_failed",
        )
    shape = (sum(piece.shape[0] for piece in pieces), *first.shape[1:])
    size = sum(len(piece.data) for piece in pieces)
    if size >= LARGE or any(isinstance(piece, UnfinishedTensor) for piece in pieces):
        parts = [part for piece in pieces for part in pieces_of(piece)]
        return UnfinishedTensor(first.name, first.datatype, shape, b"", first.parameters, parts)
    data = b"".join([piece.data for piece in pieces])
    return Tensor(first.name, first.datatype, shape, data, first.parameters)


_LOG = logging.getLogger(__name__)


class Batcher(Dispatcher):
    """The scheduler of models without state between requests and with one response to each.

    Without `dynamic_batching` a batch is one request. A batch that fails is cut in half and computed again, down to
    the request that fails it: at most 2n - 2 further executions for n requests.
    """

    def __init__(self, config: ModelConfig, instances: Sequence[Instance], recorder: Recorder | None = None) -> None:
        self._outlet = ResponseOutlet(config)
        self._batch_inputs = BatchInputs(config)
        names = [spec.name for spec in config.outputs]
        self._places = {name: place for place, name in enumerate(names)} if 1 < len(names) <= MAX_SELECTED else {}
        rules = config.dynamic_batching
        self._sizes = sorted(rules.allowed_batch_sizes) if rules else []
        self._delivery = OrderedDelivery() if rules and rules.preserve_ordering else Delivery()
        super().__init__(config, instances, recorder)

    def infer(self, inference: Inference, deadline: float = inf) -> asyncio.Future[list[Tensor]]:
        """The future of the request's outputs; cancelling it withdraws the request. `deadline` is loop time.

        Raises `CallerError` for a request that does not fit the model, and `CapacityError` if the queue is full or the
        deadline cannot be met; the future may fail with `BackendError`, `CapacityError` and `DeadlineError`.
        """
        self._open()
        now = self._clock()
        prepared = self._intake.read(inference)
        if prepared.rows > self._queue.max_rows:
            return self._cut(inference, prepared, now, deadline)
        pending = self._pending(inference, prepared, now, deadline)
        self._submit(pending)
        self._delivery.enter(pending)
        return pending

    def stream(self, inference: Inference, deadline: float = inf) -> Responses:
        """Like `infer`, as a stream of one response."""
        return Responses(self.infer(inference, deadline))

    def _cut(self, inference: Inference, prepared: PreparedRequest, now: float, due: float) -> Joint:
        """Split a request of more rows than a batch may have. Returns its parts and their common future."""
        step = self._queue.max_rows
        parts = []
        try:
            for at in range(0, prepared.rows, step):
                rows = min(step, prepared.rows - at)
                inputs = {name: rows_of(array, prepared.rows, at, at + rows) for name, array in prepared.inputs.items()}
                shapes = {name: (rows, *shape[1:]) for name, shape in (prepared.shapes or {}).items()}
                cut = prepared._replace(inputs=inputs, rows=rows, shapes=shapes)
                parts.append(self._pending(inference, cut, now, due))
                self._submit(parts[-1])
        except InferenceError:
            for part in parts:
                part.cancel()
            raise
        for part in parts:
            self._delivery.enter(part)
        return Joint(self._loop, parts, self._outlet.counted)

    # ── one batch ─────────────────────────────────────────────────────────────────────────────────────

    def _start(self, instance: Instance, execution: Execution, members: list[Pending]) -> None:
        batch = Batch([member.prepared.inputs for member in members], [member.rows for member in members])
        if self._batch_inputs:
            batch.members = self._batch_inputs.added(batch.members, [m.prepared.shapes or {} for m in members])
        if self._places:
            batch.outputs = self._selected(members)
        execution.rows += filled(batch, self._sizes, execution.rows)
        done = functools.partial(self._done, instance, execution, members)
        try:
            instance.start(batch, done)
        except Exception as error:
            _LOG.exception("instance %s could not take a batch", instance.name)
            done(error)

    def _selected(self, members: Sequence[Pending]) -> int:
        """The outputs that some member wants (`Batch.outputs`)."""
        selected = 0
        for member in members:
            if (requested := member.prepared.requested) is None:
                return 0
            for name in requested:
                selected |= 1 << self._places[name]
        return selected

    def _done(
        self, instance: Instance, execution: Execution, members: list[Pending], result: Tensors | BaseException
    ) -> None:
        now = self._clock()
        execution.seconds = now - execution.started
        failed = isinstance(result, BaseException)
        if failed and not isinstance(result, RowsFailed | InstanceLost) and len(members) > 1:
            middle = len(members) // 2
            self._again.extendleft((members[middle:], members[:middle]))
            self._ended(instance)
            return
        if not isinstance(result, InstanceLost):
            self._curve.observe(execution.rows, execution.seconds)
        # The copy gets its next batch first, and computes while the rest is done here.
        self._ended(instance)
        if isinstance(result, BaseException) and not isinstance(result, RowsFailed):
            for member in members:
                self._delivery.fail(member, for_caller(result))
        else:
            self._answer(execution, members, result)
        self._settle()

    def _answer(self, execution: Execution, members: list[Pending], result: Tensors | RowsFailed) -> None:
        errors: Mapping[int, str] = {}
        if isinstance(result, RowsFailed):
            outputs, errors = result.outputs, result.errors
        else:
            outputs = result
        try:
            answers = self._outlet.split(outputs, [member.prepared for member in members])
        except Exception:
            _LOG.exception("the outputs of a batch could not be split")
            for member in members:
                self._delivery.fail(member, unreadable())
            return
        row, queued = 0, 0.0
        for member, answer in zip(members, answers, strict=True):
            queued += execution.started - member.arrived
            rows = range(row, row + member.rows)
            message = next((errors[at] for at in rows if at in errors), None) if errors else None
            row += member.rows
            if message is not None:
                self._delivery.fail(member, for_row(message))
            else:
                self._delivery.answer(member, answer)
        self._recorder.executed(len(members), row, queued, execution.seconds)

    def _begun(self) -> Iterator[Pending]:
        yield from super()._begun()
        yield from (pending for pending in self._delivery if not pending.waiting)

    def _settle(self) -> None:
        self._delivery.release()
        super()._settle()


def filled(batch: Batch, sizes: Sequence[int], rows: int) -> int:
    """Pad a batch up to a size that the model is compiled for, with copies of a row that it takes. Returns the number
    of added rows."""
    at = bisect_left(sizes, rows)
    missing = sizes[at] - rows if at < len(sizes) else 0
    if missing:
        last, count = batch.members[-1], batch.rows[-1]
        filler = {name: rows_of(array, count, 0, 1) for name, array in last.items()}
        batch.members = [*batch.members, *[filler] * missing]
        batch.rows = [*batch.rows, *[1] * missing]
    return missing


def rows_of(array: Array, rows: int, start: int, stop: int) -> Array:
    """Rows of a request. A ragged input has more than one element of its first dimension for each row."""
    size = array.shape[0] // rows
    return array[start * size : stop * size]
