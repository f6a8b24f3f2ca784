"""Metrics of the records of requests."""

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from gateway.features.journal.live import LiveJournal
from gateway.features.requests.writer import RequestWriter

_LOST = "headrace_request_records_lost"
_HELP = "Requests whose record was lost, by reason."


class RequestsLost(Collector):
    """What a process could not write to its journal."""

    def __init__(self, journal: LiveJournal) -> None:
        self._journal = journal

    def collect(self) -> Iterator[Metric]:
        lost = CounterMetricFamily(_LOST, _HELP, labels=("reason",))
        lost.add_metric(("disk",), self._journal.unrecorded)
        yield lost


class RequestsMetrics(Collector):
    """The state of the writer of a host."""

    def __init__(self, writer: RequestWriter) -> None:
        self._writer = writer

    def collect(self) -> Iterator[Metric]:
        yield CounterMetricFamily(
            "headrace_request_records_dropped",
            "Records that waited for the database beyond `requests.max_waiting`, or came after their day's end of "
            "retention.",
            self._writer.dropped,
        )
        yield GaugeMetricFamily(
            "headrace_request_records_written_timestamp_seconds",
            "Unix time of the last successful write of records; 0 before the first.",
            self._writer.written,
        )
