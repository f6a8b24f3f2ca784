"""Starts the spans of requests, and chooses at their end whether they are exported."""

from collections.abc import Callable, Mapping
from random import Random

from adapters import statuses
from adapters.errors import ClientGone
from adapters.spans import SpanLog, read_baggage, read_context
from config.schema.telemetry import TracesConfig
from gateway.telemetry.record import Record
from gateway.telemetry.traces.attributes import attributes_of, name_of
from gateway.telemetry.traces.collector import Collector, collector_of
from gateway.telemetry.traces.encoding import EndedTrace
from gateway.telemetry.traces.exporter import Exporter
from gateway.telemetry.traces.journal import LeftTrace, TraceJournal
from gateway.telemetry.traces.span_attributes import decision_event
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
        journal: TraceJournal | None = None,
    ) -> None:
        self.config = config
        self._clock = clock
        self._continues = config.incoming == "continue"
        self._sampler = TailSampler(config.keep, config.sample)
        resource = {"service.name": config.service, **config.resource}
        self.exporter = Exporter(connect(config), resource, config.max_queued, rng, ended=self._forget)
        self._journal = journal
        self._live: set[Record] = set() if journal is None else journal.live

    def begin(self, record: Record, headers: Mapping[str, str]) -> None:
        """Start the spans of a request; its headers may continue a client's trace."""
        if self._continues and (parent := headers.get("traceparent")) is not None:
            spans = self._continued(parent, headers, record.started)
        else:
            spans = SpanLog(None, record.started, self._clock)
        if not spans.sampled and self._sampler.samples(spans.trace):
            spans.sampled = True
        record.trace.spans = spans
        self._live.add(record)

    def _continued(self, parent: str, headers: Mapping[str, str], start: float) -> SpanLog:
        context = read_context(parent, headers.get("tracestate"))
        spans = SpanLog(context, start, self._clock)
        if context is not None:
            spans.baggage = read_baggage(headers.get("baggage"))
        return spans

    def choose(self, record: Record) -> None:
        """Note in the record of a request that has ended whether its spans are exported."""
        spans = record.trace.spans
        assert spans is not None, "the request is not traced"
        is_slow = self._sampler.is_slow(record.model, record.ended - record.started)
        if is_slow or spans.sampled or self._is_special(record):
            record.exported = spans.trace_id.hex()

    def end(self, record: Record) -> None:
        """Export the spans of a request, if they were chosen."""
        spans = record.trace.spans
        assert spans is not None, "the request is not traced"
        self._live.discard(record)
        if record.exported:
            self._export(record, spans)
        else:
            self._forget(spans)
            spans.release()
            record.trace.spans = None  # the record waits for its log line, and the collector examines its objects

    def recover(self, left: LeftTrace) -> None:
        """Export the trace of a killed process, if a rule selects it."""
        if left.selected or left.spans.sampled or self._sampler.selects(failed=True, rerouted=False, rollout=False):
            self.exporter.add(EndedTrace(left.spans, 0.0, left.ended))

    def _forget(self, spans: SpanLog) -> None:
        """Remove a trace that is exported or lost from the journal."""
        if self._journal is not None:
            self._journal.free(spans)

    def _is_special(self, record: Record) -> bool:
        """Whether a rule selects a request by its outcome."""
        error, events, decision = record.error, record.trace.events, record.decision
        if error is None and not events and (decision is None or decision.comparison is None):
            return False
        return self._sampler.selects(
            failed=_failed(record),
            rerouted=any(kind in _REROUTES for kind, _ in events),
            rollout=decision is not None and decision.comparison is not None and decision.side > 0,
        )

    def _export(self, record: Record, spans: SpanLog) -> None:
        for span in spans.spans:
            span.describe(spans)
        root = spans.root
        if spans.decided and record.decision is not None:
            root.events = (decision_event(record.decision, spans.decided), *root.events)
        root.name, root.attributes = name_of(record), {**attributes_of(record, spans), **root.attributes}
        if spans.dropped:
            root.attributes["headrace.dropped_spans"] = spans.dropped
        if first := record.trace.first_chunk:
            root.event("first_chunk", first)
        root.finish(record.ended, record.error.kind if record.error is not None and _failed(record) else "")
        spans.request = spans.described = None
        if self.exporter.add(EndedTrace(spans, record.time - record.ended, record.ended)):
            if self._journal is not None:
                self._journal.store(spans, selected=True)
        else:
            record.exported = ""
            self._forget(spans)


def _failed(record: Record) -> bool:
    """Whether the gateway or a server failed. A stream that broke has the status 200, with which it began."""
    error = record.error
    return error is not None and statuses.http_status(error) >= 500 and not isinstance(error, ClientGone)
