"""The scheduler of models that receive requests whole, decoupled or not."""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Iterator, Sequence
from math import inf
from typing import cast

from adapters.errors import CallerError
from adapters.tensors import Inference, Tensor
from runtimes.tensor.configuration.model_config import ModelConfig
from runtimes.tensor.interfaces import Instance, RequestInstance
from runtimes.tensor.requests.open_request import OpenRequest
from runtimes.tensor.scheduling.dispatcher import Dispatcher
from runtimes.tensor.scheduling.pending import Execution, Pending, Recorder, for_caller
from runtimes.tensor.scheduling.responses import Delivery, OrderedDelivery, Responses

_LOG = logging.getLogger(__name__)


class RequestScheduler(Dispatcher):
    """Schedules lists of requests, which are neither joined nor cut. A copy is idle again when `execute` returns;
    each request ends with its own final response, which may come later."""

    def __init__(self, config: ModelConfig, instances: Sequence[Instance], recorder: Recorder | None = None) -> None:
        rules = config.dynamic_batching
        self._decoupled = config.decoupled
        self._delivery = OrderedDelivery() if rules and rules.preserve_ordering else Delivery()
        self._open_requests: dict[OpenRequest, None] = {}
        """Requests that were sent to a copy and have no final response."""
        super().__init__(config, instances, recorder, whole_requests=True)

    def infer(self, inference: Inference, deadline: float = inf) -> asyncio.Future[list[Tensor]]:
        """See `ModelScheduler`."""
        if self._decoupled:
            raise CallerError(
                f"Model `{inference.model_name}` sends any number of responses: use a stream.", code="model_decoupled"
            )
        return self._enter(inference, deadline, None)

    def stream(self, inference: Inference, deadline: float = inf) -> Responses:
        """See `ModelScheduler`."""
        if not self._decoupled:
            return Responses(self.infer(inference, deadline))
        responses: list[Responses] = []
        self._enter(inference, deadline, responses)
        return responses[0]

    def _enter(self, inference: Inference, deadline: float, responses: list[Responses] | None) -> OpenRequest:
        self._open()
        now = self._clock()
        prepared = self._intake.read(inference)
        if prepared.rows > self._queue.max_rows:
            raise CallerError(
                f"inference request batch-size must be <= {self._queue.max_rows} for '{inference.model_name}'"
            )
        request = OpenRequest(self._loop, self, prepared, inference, now, deadline)
        request.delivery = self._delivery
        if responses is not None:
            request.responses = Responses(request)
            responses.append(request.responses)
        self._prioritize(request, inference)
        self._submit(request)
        self._delivery.enter(request)
        return request

    # ── one batch ─────────────────────────────────────────────────────────────────────────────────────

    def _start(self, instance: Instance, execution: Execution, members: list[Pending]) -> None:
        requests: list[OpenRequest] = members  # type: ignore[assignment]  # all that enter are
        copy = cast("RequestInstance", instance)
        for request in requests:
            self._open_requests[request] = None
        done = functools.partial(self._returned, instance, execution, requests)
        try:
            copy.execute(requests, self._end_request, done)
        except Exception as error:
            _LOG.exception("instance %s could not take requests", instance.name)
            for request in requests:
                request.failed(for_caller(error))
                self._end_request(request)
            done(error)

    def _returned(self, instance: Instance, execution: Execution, requests: list[OpenRequest], result: object) -> None:
        """Handle the return of `execute`, or the loss of the copy."""
        execution.seconds = self._clock() - execution.started
        if not isinstance(result, BaseException):
            self._curve.observe(execution.rows, execution.seconds)
            queued = sum([execution.started - request.arrived for request in requests])
            self._recorder.executed(len(requests), execution.rows, queued, execution.seconds)
        self._ended(instance)
        self._settle()

    def _end_request(self, request: OpenRequest) -> None:
        """Handle the end of a request by the model, or by the loss of its copy."""
        self._open_requests.pop(request, None)
        self._settle()

    def _begun(self) -> Iterator[Pending]:
        yield from super()._begun()
        yield from self._open_requests
        yield from (pending for pending in self._delivery if not pending.waiting)

    def _settle(self) -> None:
        self._delivery.release()
        super()._settle()

    @property
    def is_idle(self) -> bool:
        return super().is_idle and not self._open_requests
