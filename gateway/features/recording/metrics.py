"""Metrics of records."""

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, Metric
from prometheus_client.registry import Collector

from gateway.features.recording.recorder import TrafficRecorder


class RecordMetrics(Collector):
    """Reads the counts of a recorder at each scrape."""

    def __init__(self, recorder: TrafficRecorder) -> None:
        self._recorder = recorder

    def collect(self) -> Iterator[Metric]:
        written, lost = self._recorder.written, self._recorder.lost
        records = CounterMetricFamily("headrace_records", "Requests written to the record.")
        records.add_metric((), written["records"])
        size = CounterMetricFamily("headrace_record_bytes", "Bytes written to the record.")
        size.add_metric((), written["bytes"])
        dropped = CounterMetricFamily("headrace_records_lost", "Sampled requests without a record.", labels=("reason",))
        for reason in ("queue", "disk", "content"):
            dropped.add_metric((reason,), lost[reason])
        yield from (records, size, dropped)
