"""Metrics of the steps of pipelines."""

from collections import Counter
from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily, Metric

from adapters.call import CallTrace
from gateway.telemetry.histogram import Histogram

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)


class StepMetrics:
    """Durations and errors of steps. Pipelines and steps come from the configuration, so labels are bounded."""

    def __init__(self) -> None:
        self._seconds: dict[tuple[str, str], Histogram] = {}
        self._errors: Counter[tuple[str, str, str]] = Counter()
        self._escalations: Counter[tuple[str, str]] = Counter()
        self._blocks: Counter[tuple[str, str]] = Counter()

    def count(self, trace: CallTrace) -> None:
        """Count the steps of a request that has ended."""
        for step in trace.steps:
            key = (step.pipeline, step.name)
            histogram = self._seconds.get(key)
            if histogram is None:
                histogram = self._seconds[key] = Histogram(SECONDS)
            histogram.observe(step.seconds)
            if step.escalations:
                self._escalations[key] += step.escalations
            if step.blocked:
                self._blocks[key] += 1
            if step.error:
                self._errors[(*key, step.error)] += 1

    def collect(self) -> Iterator[Metric]:
        """The families of a scrape."""
        seconds = HistogramMetricFamily(
            "headrace_step_seconds",
            "Time of a pipeline's step until it ended or, for a stream to the client, began.",
            labels=("pipeline", "step"),
        )
        for key, histogram in self._seconds.items():
            seconds.add_metric(key, histogram.buckets(), histogram.sum)
        errors = CounterMetricFamily(
            "headrace_step_errors", "Failed steps of pipelines.", labels=("pipeline", "step", "kind")
        )
        for labels, count in self._errors.items():
            errors.add_metric(labels, count)
        escalations = CounterMetricFamily(
            "headrace_escalations",
            "Answers of a cascade's stages that were not accepted.",
            labels=("pipeline", "step"),
        )
        for key, count in self._escalations.items():
            escalations.add_metric(key, count)
        blocks = CounterMetricFamily(
            "headrace_guard_blocks", "Requests and answers that a guard blocked.", labels=("pipeline", "step")
        )
        for key, count in self._blocks.items():
            blocks.add_metric(key, count)
        yield from (seconds, errors, escalations, blocks)
