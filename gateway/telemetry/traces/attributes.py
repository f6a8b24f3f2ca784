"""The attributes of a request's own span, from its record.

Names are those of OpenTelemetry's conventions (HTTP, generative AI); others begin with `headrace.`. There is no prompt,
no answer and no credential in them; `content.py` adds texts on routes that opt in.
"""

from adapters.spans import Attribute, SpanLog
from gateway.telemetry.record import Record
from gateway.telemetry.traces.span_attributes import GENERATES, described, usage_attributes

_RESPONSE = ("gen_ai.response.id", "gen_ai.response.model", "gen_ai.response.finish_reasons")


def name_of(record: Record) -> str:
    """The name of the span: the operation and the configured model, so that names are few."""
    return f"{record.operation} {record.model}" if record.model else record.operation


def attributes_of(record: Record, spans: SpanLog) -> dict[str, Attribute]:
    """All attributes; those that do not apply are absent. The spans are described already."""
    given: dict[str, Attribute | None] = {
        "headrace.operation": record.operation,
        "headrace.request_id": record.request_id,
        "headrace.tenant": record.tenant or None,
        "headrace.team": record.team or None,
        "headrace.key": record.key or None,
        "headrace.model": record.model or None,
        "headrace.pool": record.pool or None,
        "headrace.endpoint": record.endpoint or None,
        "headrace.arm": record.arm,
        "headrace.attempts": len(record.trace.attempts),
        "headrace.cost": str(record.cost) if record.cost is not None else None,
        "client.address": record.client or None,
        "http.response.status_code": record.status,
        **_seconds(record),
        **usage_attributes(record.usage),
    }
    if record.operation in GENERATES:
        given |= {} if spans.request is None else described(spans.request, spans)
        given |= _of_response(spans)
        given["gen_ai.operation.name"] = record.operation
        given["gen_ai.provider.name"] = "headrace"
        given["gen_ai.request.model"] = record.model or None
        given["gen_ai.request.stream"] = record.stream or None
    if record.guards:
        given["headrace.guards"] = tuple([f"{' '.join(key)}: {count}" for key, count in record.guards.items()])
    if (error := record.error) is not None:
        given["error.type"] = error.code or error.kind
    return {name: value for name, value in given.items() if value is not None}


def _of_response(spans: SpanLog) -> dict[str, Attribute]:
    """The response's own attributes: those of the last attempt that the request itself has made."""
    own = spans.root_id
    attempts = [span for span in spans.spans if span.kind == "client" and span.parent == own and not span.error]
    last = attempts[-1].attributes if attempts else {}
    return {name: last[name] for name in _RESPONSE if name in last}


def _seconds(record: Record) -> dict[str, Attribute | None]:
    trace = record.trace
    if not trace.first_chunk:
        return {}
    first = trace.first_chunk - record.started
    streams = record.stream and record.operation in GENERATES
    return {
        "gen_ai.response.time_to_first_chunk" if streams else "headrace.first_byte_seconds": first,
        "headrace.queue_seconds": trace.queue_seconds or None,
        "headrace.overhead_seconds": record.overhead,
    }
