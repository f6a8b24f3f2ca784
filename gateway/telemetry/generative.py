"""Metrics of generative requests by OpenTelemetry's conventions, under the names that its exporters give them.

The buckets are those of the conventions. `gen_ai_provider_name` is this gateway, which is the provider of its clients;
`headrace_*` metrics name the pools. Labels come from the configuration.
"""

from collections.abc import Iterator

from prometheus_client.core import HistogramMetricFamily, Metric

from gateway.telemetry.histogram import Histogram, observe
from gateway.telemetry.record import Record

READS = frozenset({"embeddings", "rerank", "score", "classify"})
"""Operations that write no tokens."""
OPERATIONS = READS | {"chat", "text_completion"}
PROVIDER = "headrace"
SECONDS = tuple(round(0.01 * 2**power, 2) for power in range(14))
FIRST_TOKEN = (
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0,
)  # fmt: skip
NEXT_TOKEN = (0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5)
TOKENS = tuple(float(4**power) for power in range(14))
_LABELS = ("gen_ai_operation_name", "gen_ai_provider_name", "gen_ai_request_model")


class _Generated:
    """Measurements of one operation of one model."""

    __slots__ = ("durations", "first_token", "input_tokens", "next_token", "output_tokens")

    def __init__(self) -> None:
        self.durations: dict[str, Histogram] = {}
        """Seconds, by the kind of the error."""
        self.first_token = Histogram(FIRST_TOKEN)
        self.next_token = Histogram(NEXT_TOKEN)
        self.input_tokens = Histogram(TOKENS)
        self.output_tokens = Histogram(TOKENS)


class GenerativeMetrics:
    """Counts requests that generate text or embeddings."""

    def __init__(self) -> None:
        self._generated: dict[tuple[str, str], _Generated] = {}

    def count(self, record: Record) -> None:
        """Count a request that has ended. A request without a configured model is not counted."""
        if record.operation not in OPERATIONS or not record.model:
            return
        key = (record.operation, record.model)
        generated = self._generated.get(key)
        if generated is None:
            generated = self._generated[key] = _Generated()
        kind = record.error.kind if record.error is not None else ""
        durations = generated.durations.get(kind)
        if durations is None:
            durations = generated.durations[kind] = Histogram(SECONDS)
        exemplar, first = record.exported, record.trace.first_chunk
        timed: list[tuple[Histogram, float]] = [(durations, record.ended - record.started)]
        usage = record.usage
        if usage is not None:
            if record.operation in READS:
                observe((generated.input_tokens, usage.prompt_tokens))
            else:
                tokens = (generated.output_tokens, usage.completion_tokens)
                observe((generated.input_tokens, usage.prompt_tokens), tokens)
                if record.stream and first:
                    timed.append((generated.first_token, first - record.started))
                    if usage.completion_tokens > 1:
                        seconds = (record.ended - first) / (usage.completion_tokens - 1)
                        timed.append((generated.next_token, seconds))
        observe(*timed, trace_id=exemplar)

    def collect(self) -> Iterator[Metric]:
        duration = HistogramMetricFamily(
            "gen_ai_server_request_duration_seconds",
            "From the head of a generative request to the end of its answer.",
            labels=(*_LABELS, "error_type"),
        )
        first = HistogramMetricFamily(
            "gen_ai_server_time_to_first_token_seconds",
            "From the head of a streamed request to its first chunk.",
            labels=_LABELS,
        )
        following = HistogramMetricFamily(
            "gen_ai_server_time_per_output_token_seconds",
            "Mean time per token after the first one of a streamed answer.",
            labels=_LABELS,
        )
        tokens = HistogramMetricFamily(
            "gen_ai_client_token_usage", "Charged tokens of a request.", labels=(*_LABELS, "gen_ai_token_type")
        )
        for (operation, model), generated in self._generated.items():
            labels = (operation, PROVIDER, model)
            for kind, durations in generated.durations.items():
                duration.add_metric((*labels, kind), durations.buckets(), durations.sum)
            for family, histogram in ((first, generated.first_token), (following, generated.next_token)):
                if any(histogram.counts):
                    family.add_metric(labels, histogram.buckets(), histogram.sum)
            for kind, counted in (("input", generated.input_tokens), ("output", generated.output_tokens)):
                if any(counted.counts):
                    tokens.add_metric((*labels, kind), counted.buckets(), counted.sum)
        yield from (duration, first, following, tokens)
