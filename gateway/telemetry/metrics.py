"""Every metric of the gateway, in one file.

Requests are counted in plain numbers, and a scrape converts the numbers to Prometheus' families: requests end
thousands of times a second, scrapes occur a few times a minute.

Labels are bounded: tenants, models, arms, pools and endpoints come from the configuration, and a status or an error
kind from a fixed list. A client's text is never a label.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from config.schema.money import PICOS
from gateway.auth.jwks import Jwks
from gateway.limits.account import Account
from gateway.telemetry.events import Event, families
from gateway.telemetry.histogram import Histogram
from gateway.telemetry.pipelines import StepMetrics
from gateway.telemetry.record import Record
from gateway.traffic.endpoint import Endpoint

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0)
OUTCOME = ("tenant", "model", "arm", "pool", "status", "error")
OVERHEAD = (0.00005, 0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.05, 0.25, 1.0)


class Served:
    """Measurements of answered requests, for one model and pool."""

    __slots__ = ("duration", "first_chunk")

    def __init__(self) -> None:
        self.duration = Histogram(SECONDS)
        self.first_chunk = Histogram(SECONDS)


class Metrics(Collector):
    """The metrics of one gateway. `watch` adds gauges that are read at each scrape."""

    def __init__(self) -> None:
        self._requests: Counter[tuple[str, str, str, str, int, str]] = Counter()  # by OUTCOME
        self._prompt_tokens: Counter[tuple[str, str]] = Counter()
        self._completion_tokens: Counter[tuple[str, str]] = Counter()
        self._rows: Counter[tuple[str, str]] = Counter()
        self._device_ms: defaultdict[tuple[str, str], float] = defaultdict(float)
        self._spend: Counter[tuple[str, str, str]] = Counter()  # picos by currency, tenant, model
        self._shadowed: Counter[tuple[str, str, str]] = Counter()  # by tenant, unit, per
        self._served: dict[tuple[str, str], Served] = {}
        self._events: Counter[Event] = Counter()
        self._overhead = Histogram(OVERHEAD)
        self._steps = StepMetrics()
        self._refused: Counter[str] = Counter()
        self.registry = CollectorRegistry()
        self.registry.register(self)

    def count(self, record: Record) -> None:
        """Count a request that has ended."""
        model, pool, error = record.model, record.pool, record.error
        kind = error.kind if error is not None else ""
        self._requests[record.tenant, model, record.arm or "", pool, record.status, kind] += 1
        if record.trace.first_chunk:
            served = self._served.get((model, pool))
            if served is None:
                served = self._served[model, pool] = Served()
            waited = record.trace.first_chunk - record.started
            served.duration.observe(record.ended - record.started)
            served.first_chunk.observe(waited)
            self._overhead.observe(record.overhead)
        if (usage := record.usage) is not None:
            payer = (record.tenant, model)
            self._prompt_tokens[payer] += usage.prompt_tokens
            self._completion_tokens[payer] += usage.completion_tokens
            if usage.rows:
                self._rows[payer] += usage.rows
                self._device_ms[payer] += usage.device_ms
        if (cost := record.cost) is not None:
            self._spend[cost.currency, record.tenant, model] += cost.picos
        if record.trace.steps:
            self._steps.count(record.trace)
        if record.trace.events:
            self._events.update(record.trace.events)
        for unit, per in record.shadowed:
            self._shadowed[record.tenant, unit, per] += 1

    def refused(self, code: str) -> None:
        """Count a rejection by the server before there was a request."""
        self._refused[code] += 1

    def watch(self, gauges: Collector) -> None:
        """Add gauges that are read at each scrape."""
        self.registry.register(gauges)

    def exposition(self) -> bytes:
        """The Prometheus text format."""
        return generate_latest(self.registry)

    # ── the scrape ────────────────────────────────────────────────────────────────────────────────────

    def collect(self) -> Iterator[Metric]:
        requests = CounterMetricFamily("headrace_requests", "Requests ended.", labels=OUTCOME)
        for outcome, count in self._requests.items():
            requests.add_metric([str(label) for label in outcome], count)
        tokens = CounterMetricFamily("headrace_tokens", "Tokens charged.", labels=("tenant", "model", "type"))
        for kind, counter in (("prompt", self._prompt_tokens), ("completion", self._completion_tokens)):
            for payer, count in counter.items():
                tokens.add_metric([*payer, kind], count)
        refused = CounterMetricFamily(
            "headrace_refused", "Refused before they became requests: malformed, too slow, too many.", labels=("code",)
        )
        for code, count in self._refused.items():
            refused.add_metric([code], count)
        rows = CounterMetricFamily("headrace_rows", "Rows of tensors charged.", labels=("tenant", "model"))
        device = CounterMetricFamily(
            "headrace_device_seconds",
            "Seconds of models' devices, where servers report them.",
            labels=("tenant", "model"),
        )
        for payer, count in self._rows.items():
            rows.add_metric(payer, count)
            device.add_metric(payer, self._device_ms[payer] / 1000)
        yield from (requests, tokens, rows, device, refused, *self._money())
        yield from (*families(self._events), *self._histograms(), *self._steps.collect())

    def _money(self) -> Iterator[Metric]:
        """The families of spend. The currency is the unit, and so a part of the name."""
        spend: dict[str, CounterMetricFamily] = {}
        for (currency, *payer), picos in self._spend.items():
            if currency not in spend:
                name = f"headrace_spend_{currency}"
                spend[currency] = CounterMetricFamily(
                    name, "Amount charged, by the price list.", labels=("tenant", "model")
                )
            spend[currency].add_metric(payer, picos / PICOS)
        shadowed = CounterMetricFamily(
            "headrace_limit_shadow_refusals",
            "Requests that a limit in shadow would have refused.",
            labels=("tenant", "unit", "per"),
        )
        for labels, count in self._shadowed.items():
            shadowed.add_metric(labels, count)
        yield from (*spend.values(), shadowed)

    def _histograms(self) -> Iterator[Metric]:
        labels = ("model", "pool")
        duration = HistogramMetricFamily(
            "headrace_request_duration_seconds", "From the head of a request to the end of its answer.", labels=labels
        )
        first_chunk = HistogramMetricFamily(
            "headrace_time_to_first_chunk_seconds", "From the head of a request to its first chunk.", labels=labels
        )
        for key, served in self._served.items():
            duration.add_metric(key, served.duration.buckets(), served.duration.sum)
            first_chunk.add_metric(key, served.first_chunk.buckets(), served.first_chunk.sum)
        overhead = HistogramMetricFamily(
            "headrace_overhead_seconds", "The gateway's own part of the time to the first chunk."
        )
        overhead.add_metric([], self._overhead.buckets(), self._overhead.sum)
        yield from (duration, first_chunk, overhead)


class IdentityGauges(Collector):
    """The availability of the key database, and the age of the public keys of token issuers."""

    def __init__(self, database_available: Callable[[], bool], key_sets: Sequence[Jwks]) -> None:
        self._available = database_available
        self._key_sets = key_sets

    def collect(self) -> Iterator[Metric]:
        available = GaugeMetricFamily("headrace_key_database_available", "1 while the key database answers.")
        available.add_metric((), self._available())
        yield available
        age = GaugeMetricFamily(
            "headrace_jwks_age_seconds",
            "Seconds since an issuer's keys were last read; +Inf before the first.",
            labels=("issuer",),
        )
        keys = GaugeMetricFamily("headrace_jwks_keys", "An issuer's keys in use.", labels=("issuer",))
        for key_set in self._key_sets:
            age.add_metric((key_set.name,), key_set.age)
            keys.add_metric((key_set.name,), len(key_set))
        yield from (age, keys)


class Gauges(Collector):
    """Gauges of endpoints and tenants, read from their state at each scrape, so that they cannot differ from it."""

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
        healthy = GaugeMetricFamily("headrace_endpoint_healthy", "1 unless the endpoint's probes fail.", labels=labels)
        closed = GaugeMetricFamily("headrace_endpoint_breaker_closed", "1 while the breaker is closed.", labels=labels)
        now = self._clock()
        for pool, endpoint in self._endpoints():
            key = (pool, endpoint.id)
            in_flight.add_metric(key, endpoint.in_flight)
            healthy.add_metric(key, endpoint.health != "unhealthy")
            closed.add_metric(key, endpoint.breaker.state(now) == "closed")
        yield from (in_flight, healthy, closed)

    def _tenant_gauges(self) -> Iterator[Metric]:
        labels = ("tenant",)
        in_flight = GaugeMetricFamily("headrace_tenant_in_flight", "Requests under way.", labels=labels)
        reserved = GaugeMetricFamily("headrace_tenant_reserved_tokens", "Tokens not yet settled.", labels=labels)
        for account in self._accounts():
            in_flight.add_metric((account.tenant,), account.in_flight)
            reserved.add_metric((account.tenant,), account.reserved_tokens)
        yield from (in_flight, reserved)


class WorkerGauges(Collector):
    """The workers of a supervisor: slot, whether a worker fills it, and the number of its restarts."""

    def __init__(self, slots: Callable[[], Iterable[tuple[int, bool, int]]]) -> None:
        self._slots = slots

    def collect(self) -> Iterator[Metric]:
        up = GaugeMetricFamily("headrace_worker_up", "1 while a worker serves in the slot.", labels=("slot",))
        restarts = CounterMetricFamily(
            "headrace_worker_restarts", "Workers started after another one ended.", labels=("slot",)
        )
        for slot, is_up, count in self._slots():
            up.add_metric((str(slot),), is_up)
            restarts.add_metric((str(slot),), count)
        yield from (up, restarts)
