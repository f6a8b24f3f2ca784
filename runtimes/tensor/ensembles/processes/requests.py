"""A member that receives requests whole: a `TritonPythonModel`."""

from __future__ import annotations

import functools
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from adapters.tensors import NO_PARAMETERS, Data, Tensor
from runtimes.tensor.configuration.model_config import ModelConfig
from runtimes.tensor.datatypes import DTYPES
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
from runtimes.tensor.interfaces import Array
from runtimes.tensor.requests.messages import MemberRun, ResponseHead
from runtimes.tensor.requests.outcomes import INTERNAL, error_of
from runtimes.tensor.scheduling.intake import Intake
from runtimes.tensor.triton_api import process
from runtimes.tensor.triton_api.model import TritonModel
from runtimes.tensor.triton_api.requests import BackendRequest
from runtimes.tensor.triton_api.responses import BackendResponse, BackendResponseSender
from runtimes.tensor.triton_api.tensors import BackendTensor


class ResponseCapture:
    """Receives the response of one request, in place of the connection to the server."""

    closed = False
    forked = False

    def __init__(self, call: StepCall, changed: threading.Condition) -> None:
        self.sender: Callable[[], BackendResponseSender | None] = lambda: None
        """A weak reference to the sender: a request that the model drops must end."""
        self.call = call
        self.done = False
        self._changed = changed

    def send(self, kind: int, number: int, header: Any, tensors: Sequence[Data] = ()) -> None:
        """A response by the request's sender, from any thread."""
        with self._changed:
            self.respond(header, tensors)
            self._changed.notify_all()

    def respond(self, head: ResponseHead, tensors: Sequence[Data]) -> None:
        """Record the first response; an end without one is an error."""
        if self.done:
            return
        call = self.call
        if head.error is not None:
            call.error = error_of(*head.error)
        elif head.empty:
            call.error = error_of(INTERNAL, "the model has sent no response to this request")
        else:
            call.parameters = head.parameters or NO_PARAMETERS
            call.outputs = [
                owned(Tensor(output.name, output.datatype, output.shape, data))
                for output, data in zip(head.outputs, tensors, strict=True)
            ]
        self.done = True

    def poll(self) -> None:
        """Whether the client has disconnected, for the model."""
        if (sender := self.sender()) is not None and self.call.is_cancelled():
            sender.cancelled = True

    def wait(self, ready: Callable[[], bool | None]) -> bool | None:
        """Return at once: a response needs no permission here."""
        return ready()


class RequestMember:
    """Executes requests in lists, as the configuration allows."""

    def __init__(self, config: ModelConfig, model: TritonModel, folder: Path) -> None:
        self._config = config
        self._intake = Intake(config, whole_requests=True)
        self._most = max(1, config.max_batch_size)
        self._model = model
        self._folder = folder
        self._changed = threading.Condition()
        self._datatypes = {spec.name: spec.datatype for spec in (*config.inputs, *config.outputs)}

    def execute(self, step: int, calls: Sequence[StepCall]) -> list[MemberRun]:
        """See `MemberModel`."""
        fit = checked(calls, self._intake)
        large = [call for call in fit if call.prepared is not None and call.prepared.rows > self._most]
        for call in large:
            text = f"inference request batch-size must be <= {self._most} for '{self._config.name}'"
            call.error = error_of(INTERNAL, text)
        fit = [call for call in fit if call not in large]
        runs = [MemberRun(step, 1, 0, 0.0, failed=1, counted=False)] * (len(calls) - len(fit))
        return [*runs, *(self._execute(step, batch) for batch in batches_of(fit, self._config))]

    def _execute(self, step: int, calls: list[StepCall]) -> MemberRun:
        rows = sum([call.prepared.rows for call in calls if call.prepared is not None])
        started = time.perf_counter()
        tensors = []
        for call in calls:
            assert call.inference is not None
            inputs = call.inference.inputs
            tensors.append([BackendTensor.received(t.name, t.datatype, t.shape, t.data) for t in inputs])
        captures = [ResponseCapture(call, self._changed) for call in calls]
        self._respond(captures, tensors)
        self._wait(captures)
        failed = sum([call.error is not None for call in calls])
        return MemberRun(step, len(calls), rows, time.perf_counter() - started, failed=failed)

    def execute_joined(
        self, step: int, inputs: dict[str, Array], rows: Sequence[int], requests: StepRequests
    ) -> JoinedOutcome | None:
        """See `MemberModel`."""
        if not executes_joined(rows, self._most, self._config):
            return None
        total, started = sum(rows), time.perf_counter()
        tensors: list[list[BackendTensor]] = [[] for _ in rows]
        for name, array in inputs.items():
            for own, part in zip(tensors, parts_of(array, rows), strict=True):
                own.append(BackendTensor.of_array(name, self._datatypes[name], part))
        captures = []
        for at, head in enumerate(requests.heads):
            call = StepCall(head, None, requests.requested, functools.partial(requests.is_cancelled, at))
            captures.append(ResponseCapture(call, self._changed))
        outputs = self._respond(captures, tensors, rows)
        if outputs is not None:
            return JoinedOutcome([MemberRun(step, len(rows), total, time.perf_counter() - started)], outputs)
        self._wait(captures)
        calls = [capture.call for capture in captures]
        failed = sum([call.error is not None for call in calls])
        return JoinedOutcome(
            [MemberRun(step, len(rows), total, time.perf_counter() - started, failed=failed)], calls=calls
        )

    def _respond(
        self, captures: list[ResponseCapture], tensors: list[list[BackendTensor]], rows: Sequence[int] = ()
    ) -> dict[str, Array] | None:
        """Execute. With `rows` the outputs joined, if all are alike; else the captures get them.

        The requests are dropped on return, so that each has a response or is known to have none.
        """
        process.folder = self._folder
        requests = [self._request(capture, own) for capture, own in zip(captures, tensors, strict=True)]
        returned = self._model.responses(requests)
        if rows and (outputs := self._joined(returned, rows, captures[0].call.requested)) is not None:
            for capture in captures:
                capture.done = True
            return outputs
        for request, response, capture in zip(requests, returned, captures, strict=True):
            if response is not None:
                capture.respond(*request.get_response_sender().head(response, final=True))
        return None

    def _request(self, capture: ResponseCapture, inputs: list[BackendTensor]) -> BackendRequest:
        call = capture.call
        sender = BackendResponseSender(capture, call.head.number, frozenset(call.requested), decoupled=False)
        capture.sender = weakref.ref(sender)
        return BackendRequest.received(call.head, inputs, sender, call.requested)

    def _joined(
        self, responses: Sequence[BackendResponse | None], rows: Sequence[int], requested: tuple[str, ...]
    ) -> dict[str, Array] | None:
        """The outputs of plain responses, all of one shape but for their rows."""
        named = []
        for response in responses:
            if response is None or response.has_error() or response.has_parameters:
                return None
            named.append({tensor.name(): tensor for tensor in response.output_tensors()})
        outputs: dict[str, Array] = {}
        for name in requested:
            arrays = [own[name].array for own in named if name in own]
            dtype, tail = DTYPES[self._datatypes[name]], None
            if len(arrays) != len(rows):
                return None
            for array, count in zip(arrays, rows, strict=True):
                if array is None or array.dtype != dtype or array.shape[:1] != (count,):
                    return None
                tail = array.shape[1:] if tail is None else tail
                if array.shape[1:] != tail:
                    return None
            outputs[name] = np.concatenate(arrays)  # type: ignore[arg-type]  # none of them is None
        return outputs

    def _wait(self, captures: list[ResponseCapture]) -> None:
        """Wait for the responses of other threads."""
        if all(capture.done for capture in captures):
            return
        with self._changed:
            self._changed.wait_for(lambda: all(capture.done for capture in captures))

    def close(self) -> None:
        self._model.close()
