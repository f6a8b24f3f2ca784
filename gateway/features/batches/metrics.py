"""Metrics of batches."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from gateway.features.batches.gate import Gate


class BatchMetrics(Collector):
    """The lines in flight, those that may be, and the progress of all unfinished batches of the database.

    `progress` returns the tenant, state, lines and ended lines of each unfinished batch, as they were read last.
    """

    def __init__(
        self,
        gate: Gate,
        progress: Callable[[], list[tuple[str, str, int, int]]],
        unused: Mapping[tuple[str, str], int],
    ) -> None:
        """`unused`: lines of providers' results that are those of no request, by pool and reason."""
        self._gate = gate
        self._progress = progress
        self._unused = unused

    def collect(self) -> Iterator[Metric]:
        running = GaugeMetricFamily("headrace_batch_lines_running", "Lines of batches in flight.", labels=["pools"])
        limit = GaugeMetricFamily(
            "headrace_batch_lines_limit", "Lines that the measured capacity allows at once.", labels=["pools"]
        )
        waiting = GaugeMetricFamily(
            "headrace_batch_lines_waiting", "Lines that wait for capacity that live requests leave.", labels=["pools"]
        )
        for lane in self._gate.lanes:
            pools = ",".join(sorted(lane.pools))
            running.add_metric([pools], lane.running)
            limit.add_metric([pools], lane.admission.limit)
            waiting.add_metric([pools], len(lane.waiting))
        unused = CounterMetricFamily(
            "headrace_batch_provider_lines_unused",
            "Lines of providers' results that are those of no request, or cannot be read.",
            labels=["pool", "reason"],
        )
        for labels, count in self._unused.items():
            unused.add_metric(labels, count)
        yield from (running, limit, waiting, unused)
        yield from self._of_batches()

    def _of_batches(self) -> Iterator[Metric]:
        """Progress by tenant and state: each process reads the same rows, so that workers are not summed."""
        batches = GaugeMetricFamily("headrace_batches_unfinished", "Unfinished batches.", labels=["tenant", "status"])
        lines = GaugeMetricFamily(
            "headrace_batch_unfinished_lines",
            "Lines of unfinished batches: all, and those with a result.",
            labels=["tenant", "state"],
        )
        counts, totals = Counter[tuple[str, str]](), Counter[tuple[str, str]]()
        for tenant, status, total, ended in self._progress():
            counts[tenant, status] += 1
            totals[tenant, "total"] += total
            totals[tenant, "ended"] += ended
        for family, values in ((batches, counts), (lines, totals)):
            for labels, value in values.items():
                family.add_metric(labels, value)
            yield family
