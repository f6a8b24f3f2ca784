"""The spans of a traced request while it is routed: its waits in queues and its attempts."""

from __future__ import annotations

from adapters.answer import Answer
from adapters.base import as_inference_error
from adapters.call import Call, StepTrace
from adapters.requests import ModelRequest
from adapters.spans import Span, SpanLog, new_id
from adapters.types import Usage
from config.schema.config import PoolConfig, ProgramRuntime
from gateway.telemetry.traces.span_attributes import (
    LARGE,
    described,
    request_attributes,
    response_attributes,
    server_attributes,
    usage_attributes,
)
from gateway.traffic.endpoint import Endpoint

_PROVIDERS = {"azure": "azure.ai.openai", "mistral": "mistral_ai", "auto": "openai"}
"""The names of the conventions for dialects that have another name here."""


def provider_of(pool: PoolConfig) -> str:
    """The provider of a pool's servers, by the names of the conventions; a server without one has its own name."""
    if pool.runtime is not None and not isinstance(pool.runtime, ProgramRuntime):
        return "headrace"
    spoken: str = getattr(pool.protocol, "dialect", None) or pool.protocol.name
    return _PROVIDERS.get(spoken, spoken)


class AttemptSpan(Span):
    """A client's span of the call to one endpoint.

    Most traces are dropped: until `describe` it has only references to objects that exist anyway.
    """

    begun = 0.0
    """Loop time at which the answer began; 0 without one."""
    usage: Usage | None = None
    excerpts: tuple[bytes, ...] = ()
    """Parts of the answer that have its id, its model and the reasons of its end."""
    _request: ModelRequest | None

    def __init__(
        self, log: SpanLog, request: ModelRequest, step: StepTrace | None, endpoint: Endpoint, pool: str, now: float
    ) -> None:
        self.id = new_id()
        self.start = now
        self._request = request
        self._step = step
        self._endpoint = endpoint
        self._pool = pool
        if endpoint.runtime:
            self.runtime = endpoint.runtime
        if endpoint.breaker.is_open:
            self.event("breaker_trial", now, **{"headrace.endpoint": endpoint.id})
        log.add(self)

    def failed(self, error: BaseException, now: float) -> None:
        """End the attempt without an answer, or with a broken one."""
        failure = as_inference_error(error)
        self.finish(now, "cancelled" if failure is None else failure.kind)
        self._release_large()

    def answered(self, answer: Answer, error: BaseException | None, now: float) -> None:
        """End the attempt with its answer."""
        self.usage, self.excerpts = answer.usage, answer.excerpts
        if error is not None:
            self.failed(error, now)
        elif not self.end:
            self.end = now
            self._release_large()

    def describe(self, log: SpanLog) -> None:
        step, endpoint = self._step, self._endpoint
        around = None if step is None else step.span
        self.log, self.kind = log, "client"
        self.parent = log.root_id if around is None else around.id
        self._describe_request(log)
        if self.begun and self.attributes.get("gen_ai.request.stream"):
            self.attributes["gen_ai.response.time_to_first_chunk"] = self.begun - self.start
        self.attributes |= {
            "headrace.pool": self._pool,
            "headrace.endpoint": endpoint.id,
            **server_attributes(endpoint.address, endpoint.id),
            **response_attributes(self.excerpts),
            **usage_attributes(self.usage),
        }
        if "gen_ai.operation.name" in self.attributes:
            self.attributes["gen_ai.provider.name"] = endpoint.provider
        super().describe(log)

    def _release_large(self) -> None:
        """Describe a large request now: its body is not held until the end of the trace."""
        request = self._request
        if request is not None and (request.size > LARGE or len(request.prompt) > LARGE):
            self._describe_request(None)

    def _describe_request(self, log: SpanLog | None) -> None:
        """Add the name and the attributes of the request, and release it."""
        request, self._request = self._request, None
        if request is not None:
            self.name = f"{request.operation} {request.model}"
            self.attributes = request_attributes(request) if log is None else described(request, log)


def waited(log: SpanLog, call: Call, pool: str, began: float, now: float, end: str) -> None:
    """Record a wait in the queue of a pool, and its outcome."""
    span = log.begin(f"queue {pool}", "internal", call.around, began)
    span.attributes = {"headrace.pool": pool, "headrace.queue.outcome": end}
    span.finish(now, "" if end == "served" else end)
