"""The spans of a traced request while it is routed: its waits in queues and its attempts.

The names of attributes are those of OpenTelemetry's conventions for generative AI where they exist.
"""

from __future__ import annotations

from functools import partial
from urllib.parse import urlsplit

from adapters.base import as_inference_error
from adapters.call import Call
from adapters.requests import ModelRequest
from adapters.spans import Attribute, Span, SpanEvent, SpanLog
from adapters.types import Usage
from config.schema.config import PoolConfig, ProgramRuntime
from gateway.traffic.endpoint import Endpoint
from policies.routing.decision import Decision

GENERATES = frozenset({"chat", "text_completion", "embeddings"})
"""Operations that the conventions for generative AI describe."""


_PROVIDERS = {"azure": "azure.ai.openai", "mistral": "mistral_ai", "auto": "openai"}
"""The names of the conventions for dialects that have another name here."""


def provider_of(pool: PoolConfig) -> str:
    """The provider of a pool's servers, by the names of the conventions; a server without one has its own name."""
    if pool.runtime is not None and not isinstance(pool.runtime, ProgramRuntime):
        return "headrace"
    spoken: str = getattr(pool.protocol, "dialect", None) or pool.protocol.name
    return _PROVIDERS.get(spoken, spoken)


class AttemptSpan(Span):
    """A client's span of the call to one endpoint. Its attributes are those of a trace that is exported."""

    __slots__ = ("begun", "endpoint", "operation", "model", "pool", "stream", "usage")

    def __init__(
        self, log: SpanLog, request: ModelRequest, around: Span | None, endpoint: Endpoint, pool: str, now: float
    ) -> None:
        Span.__init__(self, log, "", "client", (around or log.root).id, now)
        self.operation = request.operation
        self.model = request.model
        self.stream = request.stream
        self.endpoint = endpoint
        self.pool = pool
        self.begun = 0.0
        """Loop time at which the answer began; 0 without one."""
        self.usage: Usage | None = None
        self.runtime = endpoint.runtime
        if endpoint.breaker.is_open:
            self.event("breaker_trial", now, **{"headrace.endpoint": endpoint.id})
        log.add(self)

    def failed(self, error: BaseException, now: float) -> None:
        """End the attempt without an answer, or with a broken one."""
        failure = as_inference_error(error)
        self.finish(now, "cancelled" if failure is None else failure.kind)

    def answered(self, usage: Usage, error: BaseException | None, now: float) -> None:
        """End the attempt with its answer."""
        self.usage = usage
        if error is None:
            self.finish(now)
        else:
            self.failed(error, now)

    def describe(self) -> None:
        super().describe()
        self.name = f"{self.operation} {self.model}"
        address = {} if self.endpoint.address == self.endpoint.id else _address(self.endpoint.address)
        attributes = self.attributes
        attributes |= {"headrace.pool": self.pool, "headrace.endpoint": self.endpoint.id, **address}
        if self.operation not in GENERATES:
            attributes["headrace.operation"] = self.operation
        else:
            attributes["gen_ai.operation.name"] = self.operation
            attributes["gen_ai.request.model"] = self.model
            attributes["gen_ai.provider.name"] = self.endpoint.provider
            if self.stream:
                attributes["gen_ai.request.stream"] = True
                if self.begun:
                    attributes["gen_ai.response.time_to_first_chunk"] = self.begun - self.start
        attributes |= usage_attributes(self.usage)


def usage_attributes(usage: Usage | None) -> dict[str, Attribute]:
    """The usage of an attempt or of a request, by the names of the conventions; only those that are above 0."""
    if usage is None:
        return {}
    attributes: dict[str, Attribute] = {}
    if usage.prompt_tokens or usage.completion_tokens:
        attributes["gen_ai.usage.input_tokens"] = usage.prompt_tokens
        attributes["gen_ai.usage.output_tokens"] = usage.completion_tokens
    if usage.rows:
        attributes["headrace.rows"] = usage.rows
    if usage.device_ms:
        attributes["headrace.device_seconds"] = usage.device_ms / 1000
    return attributes


def decided(log: SpanLog, decision: Decision, now: float) -> None:
    """Record the route of a traced request."""
    log.rollout = decision.comparison is not None and decision.side > 0
    log.decided = partial(_decision_event, decision, now)


def _decision_event(decision: Decision, now: float) -> SpanEvent:
    route: dict[str, Attribute] = {
        "headrace.route": decision.name or str(decision.route),
        "headrace.pools": tuple(decision.pools),
    }
    if decision.target.model is not None:
        route["headrace.target_model"] = decision.target.model
    if decision.comparison is not None:
        route["headrace.comparison"], route["headrace.side"] = decision.comparison.name, decision.side
    return now, "decision", route


def waited(log: SpanLog, call: Call, pool: str, began: float, now: float, end: str) -> None:
    """Record a wait in the queue of a pool, and its outcome."""
    span = log.begin(f"queue {pool}", "internal", call.around, began)
    span.attributes = {"headrace.pool": pool, "headrace.queue.outcome": end}
    span.finish(now, "" if end == "served" else end)


def _address(url: str) -> dict[str, Attribute]:
    """The server of an endpoint; a Unix socket has no port."""
    if url.startswith("unix:"):
        return {"server.address": url.removeprefix("unix:")}
    parts = urlsplit(url)
    if parts.hostname is None:
        return {}
    return {"server.address": parts.hostname, "server.port": parts.port or (443 if parts.scheme == "https" else 80)}
