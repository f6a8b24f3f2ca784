"""Starts the spans of requests, and chooses at their end whether they are exported."""

from collections.abc import Callable, Mapping
from random import Random

from adapters import statuses
from adapters.errors import ClientGone
from adapters.spans import SpanLog, read_baggage, read_context
from config.schema.telemetry.traces import TracesConfig
from gateway.telemetry.record import Record
from gateway.telemetry.traces.attributes import attributes_of, name_of
from gateway.telemetry.traces.collector import Collector, collector_of
from gateway.telemetry.traces.encoding import EndedTrace
from gateway.telemetry.traces.exporter import Exporter
from policies.tail import TailSampler

_REROUTES = frozenset({"retry", "fallback", "hedge", "resume", "resume_failure"})


class RequestTracer:
    """The traces of one configuration, with the exporter that they go to."""

    def __init__(
        self,
        config: TracesConfig,
        clock: Callable[[], float],
        rng: Random,
        connect: Callable[[TracesConfig], Collector] = collector_of,
    ) -> None:
        self.config = config
        self._clock = clock
        self._continues = config.incoming == "continue"
        self._sampler = TailSampler(config.keep, config.sample)
        resource = {"service.name": config.service, **config.resource}
        self.exporter = Exporter(connect(config), resource, config.max_queued, rng)

    def begin(self, headers: Mapping[str, str], start: float) -> SpanLog:
        """Start the spans of a request; its headers may continue a client's trace."""
        context = None
        if self._continues and (parent := headers.get("traceparent")) is not None:
            context = read_context(parent, headers.get("tracestate"))
        spans = SpanLog(context, start, self._clock)
        if context is not None:
            spans.baggage = read_baggage(headers.get("baggage"))
        spans.sampled = spans.sampled or self._sampler.samples(spans.trace_id)
        return spans

    def end(self, record: Record) -> None:
        """Export the spans of a request that has ended, if a rule selects it, and note that in the record."""
        spans = record.trace.spans
        assert spans is not None, "the request is not traced"
        error = record.error
        # A stream that broke has the status 200, with which it began.
        failed = error is not None and statuses.http_status(error) >= 500 and not isinstance(error, ClientGone)
        events = record.trace.events
        rerouted = bool(events) and any(kind in _REROUTES for kind, _ in events)
        seconds = record.ended - record.started
        rules = self._sampler.selects(record.model, seconds, failed=failed, rerouted=rerouted, rollout=spans.rollout)
        if not rules and not spans.sampled:
            spans.release()
            return
        root = spans.root
        for span in spans.spans:
            span.describe()
        if spans.decided is not None:
            root.events.insert(0, spans.decided())
        root.name, root.attributes = name_of(record), {**attributes_of(record), **root.attributes}
        if spans.dropped:
            root.attributes["headrace.dropped_spans"] = spans.dropped
        if trace_first := record.trace.first_chunk:
            root.event("first_chunk", trace_first)
        root.finish(record.ended, error.kind if error is not None and failed else "")
        if self.exporter.add(EndedTrace(spans, record.time - record.ended, record.ended)):
            record.exported = spans.trace_id.hex()
