"""Access log and metrics.

record.py      the record of one request: the source of its log line and its metrics
access_log.py  one JSON line for each request, written in the background
process_log.py the log of the processes themselves, as text or JSON
metrics.py     the metrics of requests
background.py  metrics of background tasks and of refused writes
events.py      events of a call (retries, hedges, fallbacks) as counters and log fields
generative.py  metrics of generative requests by OpenTelemetry's conventions
tensors.py     metrics of tensor requests
histogram.py   counts of values by range, with exemplars
figures.py     sums of ended requests by model, tenant and pool
recent.py      the sums of the last seconds and minutes
pipelines.py   metrics of the steps of pipelines
redaction/     removes secrets and personal data
traces/        spans of requests, for an OpenTelemetry collector
families.py    metric families as bytes, between a worker and its supervisor
merge.py       merges the metrics of several workers
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Protocol

from adapters.errors import ClientGone, CredentialError, Drained, InferenceError
from adapters.statuses import http_status
from gateway.telemetry.access_log import AccessLog
from gateway.telemetry.metrics import Metrics
from gateway.telemetry.record import Record

if TYPE_CHECKING:
    from gateway.telemetry.traces.tracer import RequestTracer  # needs an extra

__all__ = ["AccessLog", "Metrics", "Record", "Telemetry"]

BATCH = 64
LATEST = 0.05


class RecordSink(Protocol):
    """Records all or some of the ended requests."""

    def put(self, record: Record) -> None:
        """Queue the record of a request, if it is recorded."""
        ...


class Telemetry:
    """Forwards the record of each ended request to the access log and the metrics.

    Records are forwarded in batches, some tens of milliseconds later: code that runs many times in a row costs half of
    its cost between two requests.
    """

    def __init__(self, metrics: Metrics, access_log: AccessLog, *, batch: int = BATCH) -> None:
        self.metrics = metrics
        self.access_log = access_log
        self.recorder: RecordSink | None = None
        """Receives each record too, if traffic is recorded."""
        self.tracer: RequestTracer | None = None
        """Starts and exports the spans of requests; None without a collector."""
        self.journal: RecordSink | None = None
        """Stores each record at once: it survives a killed process. None if neither usage nor requests are stored."""
        self._batch = batch
        self._ended: list[Record] = []
        self._timer: asyncio.TimerHandle | None = None

    def end(self, record: Record, error: InferenceError | None, status: int, now: float) -> None:
        """Record the end of a request. Only the first call counts."""
        if record.ended:
            return
        record.ended = now
        record.time = time.time()
        record.error = error
        if error is not None:
            # Its frames hold this record and parts of the answer; only the garbage collector could free them.
            error.__traceback__ = error.__context__ = error.__cause__ = None
            record.reason = error.reason_of_refusal
            if isinstance(error, CredentialError) and error.holder is not None:
                record.tenant, record.key, record.team = error.holder
        record.status = http_status(error) if isinstance(error, ClientGone | Drained) else status
        if self.tracer is not None and record.trace.spans is not None:
            self.tracer.choose(record)  # first: the journal names the exported trace, and so do exemplars of metrics
        if self.journal is not None:
            self.journal.put(record)
        self._ended.append(record)
        if len(self._ended) >= self._batch:
            self.flush()
        elif self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(LATEST, self.flush)

    def flush(self) -> None:
        """Forward every record that has ended."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        ended, self._ended = self._ended, []
        for record in ended:
            if record.trace.spans is not None and self.tracer is not None:
                self.tracer.end(record)
            self.metrics.count(record)
            self.access_log.write(record)
            if self.recorder is not None:
                self.recorder.put(record)
