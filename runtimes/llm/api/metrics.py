"""Metrics for Prometheus. Names follow vLLM's, under this runtime's own prefix.

Metrics that endpoint pickers read are exported under vLLM's names too: Kubernetes' Inference Extension expects these by
default, and so do dashboards and autoscalers.
"""

from collections.abc import Callable, Iterator
from typing import Literal

import prometheus_client
from prometheus_client import CollectorRegistry, Counter, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from runtimes.histogram import Histogram
from runtimes.llm.engine.async_engine import EngineStats, FinishReason

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_PREFIX = "headrace_llm"
_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 25, 50, 100)


class ServerMetrics:
    """One server's metrics. Every scrape calls `stats`; it returns None while no engine is loaded."""

    def __init__(self, stats: Callable[[], EngineStats | None]) -> None:
        self._registry = CollectorRegistry()
        self._registry.register(_EngineCollector(stats))
        self._finished = Counter(
            f"{_PREFIX}_request_finished", "Choices by finish reason.", ["finished_reason"], registry=self._registry
        )
        self._refused = Counter(
            f"{_PREFIX}_request_refused", "Requests answered with an error.", ["code"], registry=self._registry
        )
        self._first_token = self._seconds("time_to_first_token", "Seconds from the whole request to its first text.")
        self._latency = self._seconds("e2e_request_latency", "Seconds from the whole request to the end of its answer.")

    def _seconds(self, name: str, meaning: str) -> prometheus_client.Histogram:
        return prometheus_client.Histogram(
            f"{_PREFIX}_{name}_seconds", meaning, buckets=_SECONDS, registry=self._registry
        )

    def first_token(self, seconds: float) -> None:
        self._first_token.observe(seconds)

    def finished(self, reason: FinishReason | Literal["abort", "error"], seconds: float) -> None:
        """A choice has ended: `abort` if the client disconnected, `error` if the engine failed."""
        self._finished.labels(reason).inc()
        self._latency.observe(seconds)

    def refused(self, code: str) -> None:
        self._refused.labels(code).inc()

    def text(self) -> bytes:
        """All metrics in Prometheus' text format."""
        return generate_latest(self._registry)


class _EngineCollector(Collector):
    def __init__(self, stats: Callable[[], EngineStats | None]) -> None:
        self._stats = stats

    def collect(self) -> Iterator[Metric]:
        stats = self._stats()
        if stats is None:
            return
        used = 1 - stats.kv_blocks_free / stats.kv_blocks_total
        for prefix in (f"{_PREFIX}_", "vllm:"):
            yield _gauge("num_requests_running", "Sequences in the running batch.", stats.running, prefix)
            yield _gauge("num_requests_waiting", "Sequences that wait to run.", stats.waiting, prefix)
            yield _gauge("kv_cache_usage_perc", "Share of the KV cache's pages in use, 0 to 1.", used, prefix)
            # Endpoint pickers of Kubernetes' Inference Extension read the cache from an info metric's labels.
            labels = {"block_size": str(stats.block_size), "num_gpu_blocks": str(stats.kv_blocks_total)}
            info = GaugeMetricFamily(f"{prefix}cache_config_info", "Pages of the KV cache.", labels=list(labels))
            info.add_metric(list(labels.values()), 1)
            yield info
            yield _counter("prefix_cache_queries", "Prompt tokens of accepted requests.", stats.prompt_tokens, prefix)
            yield _counter("prefix_cache_hits", "Prompt tokens found in the cache.", stats.cached_prompt_tokens, prefix)
            for name, meaning, value in (
                ("num_drafts", "Times that tokens were proposed for an answer.", stats.drafts),
                ("num_draft_tokens", "Proposed tokens.", stats.proposed_tokens),
                ("num_accepted_tokens", "Proposed tokens that were accepted.", stats.accepted_tokens),
            ):
                yield _counter(f"spec_decode_{name}", meaning, value, prefix)
        yield _histogram("request_queue_time", "Seconds from a request's arrival to its first step.", stats.waits)
        yield _histogram("inter_token_latency", "Seconds between two tokens of an answer.", stats.intervals)
        yield _counter("prompt_tokens", "Prompt tokens of accepted requests.", stats.prompt_tokens)
        yield _counter("generation_tokens", "Generated tokens.", stats.generated_tokens)
        yield _counter("num_preemptions", "Sequences that were preempted to free their pages.", stats.preemptions)
        yield _counter("engine_steps", "Batches run.", stats.steps)


def _gauge(name: str, meaning: str, value: float, prefix: str = f"{_PREFIX}_") -> Metric:
    return GaugeMetricFamily(prefix + name, meaning, value)


def _counter(name: str, meaning: str, value: float, prefix: str = f"{_PREFIX}_") -> Metric:
    return CounterMetricFamily(prefix + name, meaning, value)


def _histogram(name: str, meaning: str, histogram: Histogram) -> Metric:
    return HistogramMetricFamily(f"{_PREFIX}_{name}_seconds", meaning, histogram.buckets(), histogram.sum)
