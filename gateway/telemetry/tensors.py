"""Metrics of tensor requests, which no convention defines: the rows of a request, and the time for each row."""

from collections.abc import Iterator

from prometheus_client.core import HistogramMetricFamily, Metric

from gateway.telemetry.histogram import Histogram, observe
from gateway.telemetry.record import Record

ROWS = tuple(float(2**power) for power in range(0, 17, 2))
SECONDS_PER_ROW = tuple(10.0**power * step for power in range(-6, 1) for step in (1, 2.5, 5))


class TensorMetrics:
    """Counts answered tensor requests, by model."""

    def __init__(self) -> None:
        self._rows: dict[str, tuple[Histogram, Histogram]] = {}

    def count(self, record: Record, rows: int) -> None:
        """Count an answered request of `rows` rows."""
        histograms = self._rows.get(record.model)
        if histograms is None:
            histograms = self._rows[record.model] = (Histogram(ROWS), Histogram(SECONDS_PER_ROW))
        seconds = (record.ended - record.started) / rows
        observe((histograms[0], rows), (histograms[1], seconds), trace_id=record.exported)

    def collect(self) -> Iterator[Metric]:
        rows = HistogramMetricFamily("headrace_tensor_request_rows", "Rows of a tensor request.", labels=("model",))
        seconds = HistogramMetricFamily(
            "headrace_tensor_seconds_per_row",
            "Duration of a tensor request, divided by its rows.",
            labels=("model",),
        )
        for model, (counts, durations) in self._rows.items():
            rows.add_metric((model,), counts.buckets(), counts.sum)
            seconds.add_metric((model,), durations.buckets(), durations.sum)
        yield from (rows, seconds)
