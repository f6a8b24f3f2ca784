"""One process of an ensemble, with a copy of each member."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

import msgspec

from adapters.errors import InferenceError
from runtimes.tensor.backends.base import InstanceLost
from runtimes.tensor.ensembles.members import Member
from runtimes.tensor.ensembles.outcomes import step_failure
from runtimes.tensor.ensembles.processes.messages import WHOLE, MemberRun, RequestFailure, StepsHead
from runtimes.tensor.ensembles.processes.worker import EnsembleWorker
from runtimes.tensor.ensembles.stages import Stages
from runtimes.tensor.instances.request_copy import RequestCopy
from runtimes.tensor.instances.worker import Job, MakeWorker
from runtimes.tensor.requests.messages import ModelMessage
from runtimes.tensor.scheduling.failures import for_caller

_decode_steps = msgspec.msgpack.Decoder(StepsHead).decode


class EnsembleCopy(RequestCopy):
    """A `RequestInstance` whose requests end with `execute`."""

    def __init__(self, job: Job, make: Any, execution_timeout: float, members: Sequence[Member]) -> None:
        super().__init__(job, cast("MakeWorker", make), execution_timeout)
        self.on_runs: Callable[[Sequence[MemberRun]], None] = _ignored
        """Set by the scheduler: gets the executions of the members."""
        self._name = job.config.name
        self._prepared = Stages(job.config, list(members)).prepared
        self._own = frozenset(spec.name for spec in job.config.inputs)

    def executed(self, message: ModelMessage) -> None:
        """Record the end of all requests of the list."""
        head = _decode_steps(message.header)
        offset = 0
        for response in head.responses:
            offset = self._respond(response, message, offset)
        for failure in head.failures:
            self._fail_request(failure)
        self.on_runs(head.runs)
        self.answered({})

    def _fail_request(self, failure: RequestFailure) -> None:
        entry = self._requests.pop(failure.number, None)
        if entry is None:
            return
        request, on_end = entry
        request.failed(self._named(failure.step, failure.error()))
        on_end(request)

    def _named(self, step: int, error: InferenceError) -> InferenceError:
        """The error as that of the ensemble."""
        if step == WHOLE:
            return error
        return step_failure(self._name, self._prepared[str(step)], error, self._own)

    def in_step(self, error: InferenceError) -> InferenceError:
        """The error of requests in progress, with their step."""
        progress = cast("EnsembleWorker", self._worker).progress
        return self._named(WHOLE if progress is None else progress.step, error)

    def _lost_error(self, error: InstanceLost) -> InferenceError:
        """The error of a request whose process has died, with the step that it computed."""
        return self.in_step(for_caller(error))


def _ignored(_: Sequence[MemberRun]) -> None:
    """The default of `on_runs`."""
