"""Inference, for requests of every wire, and its spans."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing, contextmanager
from math import inf
from typing import Any

from adapters import offload
from adapters.errors import BackendError, CallerError, CapacityError, DeadlineError
from adapters.spans import Attribute, Span
from adapters.tensors import EMPTY_FINAL, FINAL, NO_PARAMETERS, Inference, Parameters, Tensor, requested_outputs
from runtimes import spans
from runtimes.spans import phase
from runtimes.tensor import text_index
from runtimes.tensor.api import delivery
from runtimes.tensor.api.log_settings import LogSettings
from runtimes.tensor.api.refusals import not_implemented
from runtimes.tensor.api.shared_memory import SharedMemory
from runtimes.tensor.api.trace import RequestTrace, Tracer, parent_of_steps
from runtimes.tensor.explanations.explanation import check_selection, parameters_of, target_of, tensors_of
from runtimes.tensor.models.manager import ModelManager
from runtimes.tensor.models.served_model import Computed, ServedModel
from runtimes.tensor.requests.messages import MemberRun
from runtimes.tensor.requests.outcomes import ModelOutputs
from runtimes.tensor.scheduling.clock import clock
from runtimes.tensor.scheduling.outlet import UnfinishedOutputs
from runtimes.tensor.scheduling.responses import Responses
from runtimes.tensor.statistics import Reason


def begin_span(inference: Inference, version: str, now: float) -> Span | None:
    """Start the span of an inference inside of the request or the model that sent it; None if that is not traced."""
    if (around := spans.around.get()) is None:
        return None
    span = around.log.begin(f"infer {inference.model_name}", "internal", around, now)
    span.attributes = {"headrace.model": inference.model_name, "headrace.model_version": version}
    if inference.id:
        span.attributes["headrace.inference_id"] = inference.id[:128]
    return span


@contextmanager
def parent_of_inferences(span: Span | None) -> Iterator[None]:
    """Mark the inferences of tasks that begin here as parts of this one."""
    if span is None:
        yield
    else:
        with spans.within(span):
            yield


def end_span(span: Span, pending: Any, began: float, now: float, error: BaseException | None) -> None:
    """End the span of an inference; `pending` is its place in the schedule, None before it has one."""
    execution = getattr(pending, "execution", None)
    if execution is not None:
        phase(span, "queue", began, execution.started, {})
        ended = execution.started + execution.seconds if execution.seconds else now
        rows: dict[str, Attribute] = {"headrace.batch.rows": execution.rows}
        if own := getattr(pending, "rows", 0):
            rows["headrace.rows"] = own
        phase(span, "batch", execution.started, ended, rows)
    elif pending is not None and error is not None:
        phase(span, "queue", began, now, {})
    span.finish(now, "" if error is None else spans.kind_of(error))


log = logging.getLogger(__name__)


class InferenceService:
    """Requests of models: of clients, and `nested.Calls` of other models. All methods raise `InferenceError`."""

    def __init__(self, manager: ModelManager, memory: SharedMemory, tracer: Tracer, logs: LogSettings) -> None:
        self.manager = manager
        self.memory = memory
        self.tracer = tracer
        self.logs = logs
        self._time = clock(asyncio.get_running_loop())

    async def infer(self, inference: Inference, deadline: float = inf, served: ServedModel | None = None) -> Computed:
        """One request, one response. Cancelling withdraws it. `deadline` is loop time."""
        began = self._time()
        is_nested = served is not None
        served = served or self._lease(inference) or await self._wait(inference, deadline)
        answer: Computed | None = None
        pending: asyncio.Future[list[Tensor]] | None = None
        trace = self.tracer.begin(inference, served.version) if self.tracer.settings.any else None
        span = begin_span(inference, served.version, began)
        failure: BaseException | None = None
        try:
            if served.config.decoupled:
                raise not_implemented(
                    f"Model `{served.name}` sends any number of responses: use ModelStreamInfer, infer_stream or"
                    " generate_stream."
                )
            special = await self._prepare(inference)
            if trace is None and span is None:
                pending = served.scheduler.infer(inference, deadline)
            else:
                with parent_of_steps(trace), parent_of_inferences(span):
                    pending = served.scheduler.infer(inference, deadline)
            outputs, parameters = await pending, NO_PARAMETERS
            if type(outputs) is not list:
                if isinstance(outputs, ModelOutputs):
                    parameters = outputs.parameters
                elif isinstance(outputs, UnfinishedOutputs):
                    outputs = await outputs.finished()
            if served.drift is not None:
                served.drift.observe(inference.inputs, outputs)
            if special:
                outputs = await delivery.delivered(outputs, inference, served.config, self.memory)
            answer = Computed(served.name, served.version, inference.id, parameters, outputs)
            answer.device_seconds = getattr(pending, "device_seconds", 0.0)  # the cache computes nothing
            served.statistics.succeeded(self._time() - began)
        except BaseException as error:
            failure = error
            served.statistics.failed(self._time() - began, _reason(error))
            raise
        finally:
            if not is_nested:
                served.release()
            if span is not None:
                end_span(span, pending, began, self._time(), failure)
            if trace is not None or self.logs.verbose:
                self._record(trace, served, began, pending, answer)
        return answer

    async def explain(self, inference: Inference, deadline: float = inf) -> Computed:
        """Explain the answer to one request: see `explanations`. `deadline` is loop time."""
        served = self._lease(inference) or await self._wait(inference, deadline)
        try:
            if (explainer := served.explainer) is None or (rules := served.config.explain) is None:
                raise not_implemented(f"Model `{served.name}` has no explanations: add `explain` to its configuration.")
            target = target_of(inference)
            await self._prepare(Inference(inference.model_name, inputs=inference.inputs))
            ends = min(deadline, self._time() + rules.deadline)
            check_selection(inference, served.config, target, await explainer.targets(ends))
            made = await explainer.explain(inference, ends)
            tensors = await asyncio.to_thread(tensors_of, made, served.config, target)
            parameters = await asyncio.to_thread(parameters_of, made)
            try:
                tensors = requested_outputs(inference, tensors)
            except CallerError as error:  # only the answer could tell which outputs it has
                error.device_ms = made.device_seconds * 1000
                raise
        finally:
            served.release()
        answer = Computed(served.name, served.version, inference.id, parameters, tensors)
        answer.device_seconds = made.device_seconds
        return answer

    async def stream(
        self, inference: Inference, deadline: float = inf, served: ServedModel | None = None
    ) -> AsyncGenerator[Computed, None]:
        """Run a request with any number of responses; one, if the model is not decoupled. The caller must close the
        iterator."""
        began = self._time()
        is_nested = served is not None
        served = served or self._lease(inference) or await self._wait(inference, deadline)
        try:
            if served.config.decoupled:
                async with aclosing(self._responses(served, inference, deadline, began)) as responses:
                    async for computed in responses:
                        yield computed
            else:
                yield await self.infer(inference, deadline, served)
        finally:
            if not is_nested:
                served.release()

    async def marked_stream(self, inference: Inference, deadline: float = inf) -> AsyncGenerator[Computed, None]:
        """`stream` in which each response has the parameter `triton_final_response`.

        An empty response ends the stream where the request enables it and no other response is final.
        """
        final = False
        async with aclosing(self.stream(inference, deadline)) as responses:
            async for computed in responses:
                final = computed.final
                computed.parameters = {**computed.parameters, FINAL: final}
                yield computed
        if not final and inference.parameters.get(EMPTY_FINAL) is True:
            yield Computed(inference.model_name, "", inference.id, {FINAL: True})

    async def _responses(
        self, served: ServedModel, inference: Inference, deadline: float, began: float
    ) -> AsyncGenerator[Computed, None]:
        """The responses of a decoupled model."""
        responses: Responses | None = None
        last: Computed | None = None
        reported, count, statistics = 0.0, 0, served.statistics
        trace = self.tracer.begin(inference, served.version) if self.tracer.settings.any else None
        span = begin_span(inference, served.version, began)
        failure: BaseException | None = None
        try:
            special = await self._prepare(inference)
            with parent_of_steps(trace), parent_of_inferences(span):
                responses = served.scheduler.stream(inference, deadline)
            async for outputs in responses:
                final, parameters = False, NO_PARAMETERS
                if isinstance(outputs, ModelOutputs):
                    final, parameters = outputs.final, outputs.parameters
                elif isinstance(outputs, UnfinishedOutputs):
                    outputs = await outputs.finished()
                if special:
                    outputs = await delivery.delivered(outputs, inference, served.config, self.memory)
                last = Computed(served.name, served.version, inference.id, parameters, outputs, final=final)
                last.device_seconds = max(0.0, self._time() - _started(responses) - reported)
                reported += last.device_seconds
                statistics.response(count).add(last.device_seconds)
                count += 1
                yield last
            statistics.response(count).empty += 1
            statistics.succeeded(self._time() - began)
        except BaseException as error:
            failure, reason = error, _reason(error)
            statistics.response(count).missed(cancelled=reason == "CANCELED")
            statistics.failed(self._time() - began, reason)
            raise
        finally:
            if span is not None:
                end_span(span, None if responses is None else responses.ended, began, self._time(), failure)
            if responses is not None:
                responses.cancel()
                if trace is not None or self.logs.verbose:
                    self._record(trace, served, began, responses.ended, last)

    def lease(self, model: str, version: str, parameters: Parameters) -> ServedModel | None:
        """Lease a version in service, to be released once; None if no version is in service."""
        if parameters and (sequence := parameters.get("sequence_id")):
            return self.manager.lease_sequence(model, version, _id(sequence))
        return self.manager.lease(model, version)

    @property
    def is_observed(self) -> bool:
        """See `nested.Calls`."""
        return bool(self.tracer.settings.any or self.logs.verbose)

    def executed(self, model: str, version: str, run: MemberRun) -> None:
        """See `nested.Calls`. A version that is out of service counts nothing."""
        served = self.manager.table.leases.get((model, version))
        if served is None:
            return
        statistics = served.statistics
        if run.counted:
            statistics.executed(run.requests, run.rows, 0.0, run.seconds)
        for _ in range(run.requests - run.failed):
            statistics.succeeded(run.seconds)
        for _ in range(run.failed):
            statistics.failed(run.seconds, "BACKEND")

    def _lease(self, inference: Inference) -> ServedModel | None:
        return self.lease(inference.model_name, inference.model_version, inference.parameters)

    async def _wait(self, inference: Inference, deadline: float) -> ServedModel:
        """Lease a model that is not in service: it may be loaded for this request."""
        limit = None if deadline == inf else deadline
        return await self.manager.wait_for(inference.model_name, inference.model_version, limit)

    async def _prepare(self, inference: Inference) -> bool:
        """Read inputs from shared memory. Returns whether any output needs more than its tensor."""
        for tensor in inference.inputs:
            if tensor.parameters:
                await delivery.with_inputs(inference, self.memory)
                break
        for tensor in inference.inputs:
            if tensor.datatype == "BYTES" and len(tensor.data) >= offload.LARGE:
                await text_index.index(inference)
                break
        if not inference.outputs or not delivery.is_special(inference):
            return False
        delivery.check(inference, self.memory)
        return True

    def _record(
        self,
        trace: RequestTrace | None,
        served: ServedModel,
        began: float,
        pending: asyncio.Future[list[Tensor]] | None,
        answer: Computed | None,
    ) -> None:
        """Trace and log one request."""
        ended = self._time()
        if self.logs.verbose:
            how = "answered" if answer is not None else "not answered"
            log.debug("%s %s %s after %.3f ms", served.name, served.version, how, (ended - began) * 1000)
        if trace is None:
            return
        moments = {"REQUEST_START": began, "QUEUE_START": began}
        execution = getattr(pending, "execution", None)
        if execution is not None:
            moments["COMPUTE_START"] = execution.started
            moments["COMPUTE_END"] = execution.started + execution.seconds
        trace.times(**moments, REQUEST_END=ended)
        if answer is not None:
            trace.answered(answer)
        self.tracer.end(trace)


def _started(responses: Responses) -> float:
    """The time at which a copy of the model started the request."""
    started: float = responses.ended.execution.started  # type: ignore[attr-defined]
    return started


def _id(value: Any) -> int | str:
    return value if isinstance(value, str) else int(value)


def _reason(error: BaseException) -> Reason:
    if isinstance(error, asyncio.CancelledError | GeneratorExit):
        return "CANCELED"
    if isinstance(error, BackendError):
        return "BACKEND"
    return "REJECTED" if isinstance(error, CapacityError | DeadlineError) else "OTHER"
