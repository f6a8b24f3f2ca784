"""The spans of a traced request while it is routed: its waits in queues and its attempts.

The names of attributes are those of OpenTelemetry's conventions for generative AI where they exist.
"""

from __future__ import annotations

from collections.abc import Callable
from urllib.parse import urlsplit

from adapters.base import Answer, as_inference_error
from adapters.call import Call
from adapters.requests import GenerateRequest, ModelRequest
from adapters.spans import Attribute, Span, SpanLog
from gateway.traffic.endpoint import Endpoint


def attempt(log: SpanLog, request: ModelRequest, call: Call, endpoint: Endpoint, pool: str, now: float) -> Span:
    """Start the span of an attempt: a client's span of the call to one endpoint."""
    span = log.begin(f"{request.operation} {request.model}", "client", call.around, now)
    span.attributes = {
        "gen_ai.operation.name": request.operation,
        "gen_ai.request.model": request.model,
        "headrace.pool": pool,
        "headrace.endpoint": endpoint.id,
        **_address(endpoint.address),
    }
    span.runtime = endpoint.runtime
    if endpoint.breaker.is_open:
        span.event("breaker_trial", now, **{"headrace.endpoint": endpoint.id})
    if isinstance(request, GenerateRequest) and request.stream:
        span.attributes["gen_ai.request.stream"] = True
    return span


def failed(span: Span, error: BaseException, now: float) -> None:
    """End the span of an attempt without an answer."""
    failure = as_inference_error(error)
    span.finish(now, "cancelled" if failure is None else failure.kind)


def answered(span: Span, answer: Answer, now: float, clock: Callable[[], float]) -> None:
    """Record that an attempt's answer begins, and end its span with the answer."""
    span.attributes["gen_ai.response.time_to_first_chunk"] = now - span.start

    def end(answer: Answer, error: BaseException | None) -> None:
        failure = None if error is None else as_inference_error(error)
        usage = answer.usage
        if usage.prompt_tokens or usage.completion_tokens:
            span.attributes["gen_ai.usage.input_tokens"] = usage.prompt_tokens
            span.attributes["gen_ai.usage.output_tokens"] = usage.completion_tokens
        if usage.rows:
            span.attributes["headrace.rows"] = usage.rows
        if usage.device_ms:
            span.attributes["headrace.device_seconds"] = usage.device_ms / 1000
        span.finish(clock(), "" if error is None else "cancelled" if failure is None else failure.kind)

    answer.when_ended(end)


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
