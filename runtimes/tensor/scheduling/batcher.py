"""Joins requests into batches, and cuts the outputs for each request."""

from __future__ import annotations

import asyncio
import functools
import logging
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from math import inf

from adapters.errors import BackendError, InferenceError
from adapters.tensors import Inference, Tensor
from runtimes.tensor.backends.base import Array, Batch, Instance, InstanceLost, RowsFailed, Tensors
from runtimes.tensor.configuration.model_config import ModelConfig
from runtimes.tensor.scheduling.batch_inputs import BatchInputs
from runtimes.tensor.scheduling.delivery import Delivery, OrderedDelivery
from runtimes.tensor.scheduling.dispatcher import Dispatcher
from runtimes.tensor.scheduling.failures import for_caller, unreadable
from runtimes.tensor.scheduling.joint import Joint
from runtimes.tensor.scheduling.outlet import ResponseOutlet
from runtimes.tensor.scheduling.pending import Execution, Pending, PreparedRequest
from runtimes.tensor.scheduling.recorder import Recorder
from runtimes.tensor.scheduling.responses import Responses

_LOG = logging.getLogger(__name__)


class Batcher(Dispatcher):
    """The scheduler of models without state between requests and with one response to each.

    Without `dynamic_batching` a batch is one request. A batch that fails is cut in half and computed again, down to
    the request that fails it: at most 2n - 2 further executions for n requests.
    """

    def __init__(self, config: ModelConfig, instances: Sequence[Instance], recorder: Recorder | None = None) -> None:
        self._outlet = ResponseOutlet(config)
        self._batch_inputs = BatchInputs(config)
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
        return Joint(self._loop, parts)

    # ── one batch ─────────────────────────────────────────────────────────────────────────────────────

    def _start(self, instance: Instance, execution: Execution, members: list[Pending]) -> None:
        batch = Batch([member.prepared.inputs for member in members], [member.rows for member in members])
        if self._batch_inputs:
            batch.members = self._batch_inputs.added(batch.members, [m.prepared.shapes or {} for m in members])
        execution.rows += filled(batch, self._sizes, execution.rows)
        done = functools.partial(self._done, instance, execution, members)
        try:
            instance.start(batch, done)
        except Exception as error:
            _LOG.exception("instance %s could not take a batch", instance.name)
            done(error)

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
                self._delivery.fail(member, BackendError(message, code="model_failed"))
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
