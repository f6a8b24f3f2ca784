"""Every metric of the gateway, in one file.

Labels are bounded: tenants and models are those of the configuration, pools and endpoints too, and a status
or an error kind comes from a fixed list. What a client sends is never a label.
"""

from collections.abc import Callable, Iterable, Iterator

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from gateway.limits.ledger import Account
from gateway.telemetry.record import Record
from gateway.traffic.endpoint import Endpoint

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0)
OVERHEAD = (0.00005, 0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.05, 0.25, 1.0)
UNKNOWN = "unknown"


class Metrics:
    """One registry a gateway. Series are looked up once and kept, for a look-up costs more than the count."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        requests = ("tenant", "model", "pool", "status", "error")
        served = ("model", "pool")
        self._requests = Counter("headrace_requests", "Requests ended.", requests, registry=self.registry)
        self._tokens = Counter(
            "headrace_tokens", "Tokens charged.", ("tenant", "model", "type"), registry=self.registry
        )
        self._duration = Histogram(
            "headrace_request_duration_seconds", "From the head of a request to the end of its answer.",
            served, buckets=SECONDS, registry=self.registry,
        )  # fmt: skip
        self._first_chunk = Histogram(
            "headrace_time_to_first_chunk_seconds", "From the head of a request to the first chunk of its answer.",
            served, buckets=SECONDS, registry=self.registry,
        )  # fmt: skip
        self._overhead = Histogram(
            "headrace_overhead_seconds", "The gateway's own part of the time to the first chunk.",
            buckets=OVERHEAD, registry=self.registry,
        )  # fmt: skip
        self._refused = Counter(
            "headrace_refused", "What never became a request: malformed, too slow, too many.", ("code",),
            registry=self.registry,
        )  # fmt: skip
        self._series: dict[tuple[str, str, str, int, str], _Series] = {}

    def count(self, record: Record, now: float) -> None:
        """Take a request that has ended at loop time `now`."""
        kind = record.error.kind if record.error is not None else ""
        labels = (record.tenant, record.model, record.pool, record.status, kind)
        series = self._series.get(labels)
        if series is None:
            series = self._series[labels] = _Series(self, *labels)
        series.requests.inc()
        if record.first_chunk:
            series.duration.observe(now - record.started)
            series.first_chunk.observe(record.first_chunk - record.started)
            self._overhead.observe(record.first_chunk - record.started - record.upstream_seconds)
        if record.usage is not None:
            series.prompt_tokens.inc(record.usage.prompt_tokens)
            series.completion_tokens.inc(record.usage.completion_tokens)

    def refused(self, code: str) -> None:
        """The server refused what never became a request."""
        self._refused.labels(code).inc()

    def watch(
        self,
        endpoints: Callable[[], Iterable[tuple[str, Endpoint]]],
        accounts: Callable[[], Iterable[Account]],
        dropped_log_lines: Callable[[], int],
        clock: Callable[[], float],
    ) -> None:
        """Add what is read at the moment of the scrape."""
        self.registry.register(_Live(endpoints, accounts, dropped_log_lines, clock))

    def exposition(self) -> bytes:
        """The Prometheus text format."""
        return generate_latest(self.registry)


class _Series:
    """The bound children of one combination of labels."""

    __slots__ = ("completion_tokens", "duration", "first_chunk", "prompt_tokens", "requests")

    def __init__(self, metrics: Metrics, tenant: str, model: str, pool: str, status: int, kind: str) -> None:
        self.requests = metrics._requests.labels(tenant, model, pool, str(status), kind)
        self.duration = metrics._duration.labels(model, pool)
        self.first_chunk = metrics._first_chunk.labels(model, pool)
        self.prompt_tokens = metrics._tokens.labels(tenant, model, "prompt")
        self.completion_tokens = metrics._tokens.labels(tenant, model, "completion")


class _Live(Collector):
    """Gauges over the state itself, so that they cannot drift from it."""

    def __init__(
        self,
        endpoints: Callable[[], Iterable[tuple[str, Endpoint]]],
        accounts: Callable[[], Iterable[Account]],
        dropped_log_lines: Callable[[], int],
        clock: Callable[[], float],
    ) -> None:
        self._endpoints = endpoints
        self._accounts = accounts
        self._dropped = dropped_log_lines
        self._clock = clock

    def collect(self) -> Iterator[Metric]:
        yield from self._endpoint_gauges()
        yield from self._tenant_gauges()
        dropped = CounterMetricFamily("headrace_access_log_dropped", "Access log lines dropped.")
        dropped.add_metric([], self._dropped())
        yield dropped

    def _endpoint_gauges(self) -> Iterator[Metric]:
        labels = ("pool", "endpoint")
        in_flight = GaugeMetricFamily("headrace_endpoint_in_flight", "Requests under way.", labels=labels)
        healthy = GaugeMetricFamily("headrace_endpoint_healthy", "1 unless probes say otherwise.", labels=labels)
        closed = GaugeMetricFamily("headrace_endpoint_breaker_closed", "1 while the breaker is closed.", labels=labels)
        now = self._clock()
        for pool, endpoint in self._endpoints():
            key = (pool, endpoint.id)
            in_flight.add_metric(key, endpoint.in_flight)
            healthy.add_metric(key, endpoint.health != "unhealthy")
            closed.add_metric(key, endpoint.breaker.state(now) == "closed")
        yield from (in_flight, healthy, closed)

    def _tenant_gauges(self) -> Iterator[Metric]:
        in_flight = GaugeMetricFamily("headrace_tenant_in_flight", "Requests under way.", labels=("tenant",))
        reserved = GaugeMetricFamily(
            "headrace_tenant_reserved_tokens", "Tokens reserved, not settled.", labels=("tenant",)
        )
        for account in self._accounts():
            in_flight.add_metric((account.tenant,), account.concurrency.in_flight)
            reserved.add_metric((account.tenant,), account.reserved_tokens)
        yield from (in_flight, reserved)
