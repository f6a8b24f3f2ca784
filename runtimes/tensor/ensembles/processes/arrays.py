"""A member that receives the joined arrays of a batch."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from runtimes.tensor.configuration.model_config import ModelConfig
from runtimes.tensor.deferred_input import composed
from runtimes.tensor.ensembles.processes.calls import (
    JoinedOutcome,
    StepCall,
    StepRequests,
    batches_of,
    checked,
    executes_joined,
    owned,
    parts_of,
)
from runtimes.tensor.instances.runner import Runner, joined
from runtimes.tensor.interfaces import Array, Batch, Model, ModelFailed, RowsFailed, Tensors
from runtimes.tensor.requests.messages import MemberRun
from runtimes.tensor.scheduling.batch_inputs import BatchInputs
from runtimes.tensor.scheduling.batcher import filled, rows_of
from runtimes.tensor.scheduling.intake import Intake
from runtimes.tensor.scheduling.outlet import ResponseOutlet
from runtimes.tensor.scheduling.pending import PreparedRequest, for_caller, for_row, unreadable

_LOG = logging.getLogger(__name__)


class ArrayMember:
    """Checks, joins and cuts arrays as the scheduler of such models does. A batch that fails is cut in half and
    executed again, down to the request that fails it."""

    def __init__(self, config: ModelConfig, model: Model, log: Callable[[str], None]) -> None:
        """`log` gets the traceback of each exception of the model."""
        self._config = config
        self._intake = Intake(config)
        self._outlet = ResponseOutlet(config)
        self._batch_inputs = BatchInputs(config)
        rules = config.dynamic_batching
        self._sizes = sorted(rules.allowed_batch_sizes) if rules else []
        self._most = max(1, config.max_batch_size)
        self._runner = Runner(config, model, log)

    def execute(self, step: int, calls: Sequence[StepCall]) -> list[MemberRun]:
        """See `MemberModel`."""
        fit = checked(calls, self._intake)
        runs = [MemberRun(step, 1, 0, 0.0, failed=1, counted=False)] * (len(calls) - len(fit))
        for batch in batches_of(fit, self._config):
            self._execute(step, batch, runs)
        return runs

    def execute_joined(
        self, step: int, inputs: dict[str, Array], rows: Sequence[int], requests: StepRequests
    ) -> JoinedOutcome | None:
        """See `MemberModel`."""
        if not executes_joined(rows, self._most, self._config):
            return None
        total, started = sum(rows), time.perf_counter()
        try:
            outputs = self._runner.infer(inputs, total)
            made: dict[str, Array] = {name: array.copy() for name, array in outputs.items()}
            run = MemberRun(step, len(rows), total, time.perf_counter() - started)
            return JoinedOutcome([run], made)
        except ModelFailed as error:
            calls = self._calls(inputs, rows, requests)
            runs: list[MemberRun] = []
            self._failed(step, calls, error, time.perf_counter() - started, runs)
            return JoinedOutcome(runs, calls=calls)

    def _calls(self, inputs: dict[str, Array], rows: Sequence[int], requests: StepRequests) -> list[StepCall]:
        """The requests as separate calls."""
        calls = [StepCall(head) for head in requests.heads]
        parts = {name: parts_of(array, rows) for name, array in inputs.items()}
        for at, call in enumerate(calls):
            own = {name: arrays[at] for name, arrays in parts.items()}
            call.prepared = PreparedRequest(own, rows[at], None, requests.requested)
        return calls

    def _execute(self, step: int, calls: list[StepCall], runs: list[MemberRun]) -> None:
        members = [call.prepared for call in calls if call.prepared is not None]
        rows = sum([member.rows for member in members])
        started = time.perf_counter()
        try:
            outputs, errors = self._computed(members, rows)
        except ModelFailed as error:
            self._failed(step, calls, error, time.perf_counter() - started, runs)
            return
        failed = self._answer(calls, outputs, errors)
        runs.append(MemberRun(step, len(calls), rows, time.perf_counter() - started, failed=failed))

    def _failed(
        self, step: int, calls: list[StepCall], error: ModelFailed, seconds: float, runs: list[MemberRun]
    ) -> None:
        """The outcome of a batch that failed, as a whole or in some rows."""
        rows = sum([call.prepared.rows for call in calls if call.prepared is not None])
        if isinstance(error, RowsFailed):
            failed = self._answer(calls, error.outputs, error.errors)
            runs.append(MemberRun(step, len(calls), rows, seconds, failed=failed))
        elif len(calls) > 1:
            middle = len(calls) // 2
            self._execute(step, calls[:middle], runs)
            self._execute(step, calls[middle:], runs)
        else:
            calls[0].error = for_caller(error)
            runs.append(MemberRun(step, 1, rows, seconds, failed=1, counted=False))

    def _answer(self, calls: list[StepCall], outputs: Tensors, errors: Mapping[int, str]) -> int:
        """Cut the outputs for the requests, of which some failed. Returns their number."""
        members = [call.prepared for call in calls if call.prepared is not None]
        try:
            answers = self._outlet.split(outputs, members)
        except Exception:
            _LOG.exception("the outputs of a batch could not be split")
            for call in calls:
                call.error = unreadable()
            return len(calls)
        at = failed = 0
        for call, member, answer in zip(calls, members, answers, strict=True):
            message = next((errors[row] for row in range(at, at + member.rows) if row in errors), None)
            at += member.rows
            if message is None:
                call.outputs = [owned(tensor) for tensor in answer]
            else:
                call.error = for_row(message)
                failed += 1
        return failed

    def _computed(self, members: list[PreparedRequest], rows: int) -> tuple[Tensors, dict[int, str]]:
        """The outputs of a batch, and errors by row. Raises `ModelFailed`."""
        if len(members) == 1 and rows > self._most:
            return self._in_parts(members[0])
        batch = Batch([member.inputs for member in members], [member.rows for member in members])
        if self._batch_inputs:
            batch.members = self._batch_inputs.added(batch.members, [member.shapes or {} for member in members])
        rows += filled(batch, self._sizes, rows)
        try:
            return self._runner.infer(joined(batch), rows), {}
        except RowsFailed as some:
            return some.outputs, dict(some.errors)

    def _in_parts(self, member: PreparedRequest) -> tuple[Tensors, dict[int, str]]:
        """The outputs of a request of more rows than a batch may have."""
        parts: list[Tensors] = []
        errors: dict[int, str] = {}
        for at in range(0, member.rows, self._most):
            rows = min(self._most, member.rows - at)
            inputs = {name: rows_of(array, member.rows, at, at + rows) for name, array in member.inputs.items()}
            shapes = {name: (rows, *shape[1:]) for name, shape in (member.shapes or {}).items()}
            outputs, failed = self._computed([member._replace(inputs=inputs, rows=rows, shapes=shapes)], rows)
            parts.append({name: np.copy(array[:rows]) for name, array in outputs.items()})
            errors |= {at + row: text for row, text in failed.items()}
        return {name: self._joined(name, [part[name] for part in parts]) for name in parts[0]}, errors

    def _joined(self, name: str, parts: Sequence[Array]) -> Array:
        """The rows of all parts. Those of a counted output are filled up to the longest of all."""
        if name not in self._config.counted:
            return np.concatenate(parts)
        longest = max(part.shape[1] for part in parts)
        return composed(parts, parts[0].dtype, (sum(map(len, parts)), longest, *parts[0].shape[2:]))

    def close(self) -> None:
        self._runner.close()
