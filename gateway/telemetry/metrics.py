"""The counters and histograms of requests.

Requests are counted in plain numbers, and a scrape converts the numbers to Prometheus' families: requests end
thousands of times a second, scrapes occur a few times a minute.

Labels are bounded: tenants, models, arms, pools and endpoints come from the configuration, and a status or an error
kind from a fixed list. A client's text is never a label.
"""

import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from functools import partial

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from adapters.ignored_fields import label
from config.schema.money import PICOS
from config.schema.telemetry import MetricsConfig
from gateway.telemetry.events import Event, families
from gateway.telemetry.generative import GenerativeMetrics
from gateway.telemetry.histogram import Histogram, observe
from gateway.telemetry.pipelines import StepMetrics
from gateway.telemetry.recent import RecentTraffic
from gateway.telemetry.record import Record
from gateway.telemetry.tensors import TensorMetrics
from policies.globs import GlobSet

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0)
OTHERS = "(others)"
OUTCOME = ("tenant", "model", "arm", "pool", "status", "error")
OVERHEAD = (0.00005, 0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.05, 0.25, 1.0)


class TenantLabels(dict[str, str]):
    """The label value of each tenant: its name, or `OTHERS` if the configuration gives it no series of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.configure(MetricsConfig())

    def configure(self, config: MetricsConfig) -> None:
        """Apply a (new) configuration. Amounts counted earlier do not move to other labels."""
        self.clear()
        self.max_series = config.max_series
        self._named = GlobSet(config.tenants)

    def __missing__(self, tenant: str) -> str:
        label = self[tenant] = tenant if not tenant or tenant in self._named else OTHERS
        return label


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
        self._batch_tokens: Counter[tuple[str, str, str]] = Counter()  # by tenant, model, type
        self._rows: Counter[tuple[str, str]] = Counter()
        self._device_ms: defaultdict[tuple[str, str], float] = defaultdict(float)
        self._spend: Counter[tuple[str, str, str]] = Counter()  # picos by currency, tenant, model
        self._shadowed: Counter[tuple[str, str, str]] = Counter()  # by tenant, unit, per
        self._served: dict[tuple[str, str], Served] = {}
        self._events: Counter[Event] = Counter()
        self._overhead = Histogram(OVERHEAD)
        self._refusals: Counter[tuple[str, str, str, str]] = Counter()  # by tenant, cause, unit, per
        self._steps = StepMetrics()
        self._generative = GenerativeMetrics()
        self._tensors = TensorMetrics()
        self._refused: Counter[str] = Counter()
        self._ignored: Counter[str] = Counter()
        self._guards: Counter[tuple[str, str, str, str]] = Counter()  # by guard, action, mode, side
        self._judged: defaultdict[str, Histogram] = defaultdict(partial(Histogram, SECONDS))  # by guard
        self.recent = RecentTraffic()
        """What ended in the last minutes, for the console."""
        self.tenants = TenantLabels()
        self.registry = CollectorRegistry()
        self.registry.register(self)

    def count(self, record: Record) -> None:
        """Count a request that has ended."""
        model, pool, error = record.model, record.pool, record.error
        kind = error.kind if error is not None else ""
        tenant = self.tenants[record.tenant]
        outcome = (tenant, model, record.arm or "", pool, record.status, kind)
        if len(self._requests) >= self.tenants.max_series and outcome not in self._requests:
            outcome = (OTHERS, OTHERS, "", OTHERS, record.status, kind)
        self._requests[outcome] += 1
        self.recent.count(record, tenant)
        trace, payer = record.trace, self._payer(tenant, model)
        if trace.first_chunk:
            served = self._served.get((model, pool))
            if served is None:
                served = self._served[model, pool] = Served()
            exemplar, first = record.exported, trace.first_chunk - record.started
            observe((served.duration, record.ended - record.started), (served.first_chunk, first), trace_id=exemplar)
            observe((self._overhead, record.overhead))
        if (usage := record.usage) is not None:
            self._prompt_tokens[payer] += usage.prompt_tokens
            self._completion_tokens[payer] += usage.completion_tokens
            if record.of_batch:
                self._batch_tokens[*payer, "prompt"] += usage.prompt_tokens
                self._batch_tokens[*payer, "completion"] += usage.completion_tokens
            if usage.rows:
                self._rows[payer] += usage.rows
                self._device_ms[payer] += usage.device_ms
                self._tensors.count(record, usage.rows)
        if (cost := record.cost) is not None:
            self._spend[cost.currency, *payer] += cost.picos
        self._generative.count(record)
        if trace.steps:
            self._steps.count(trace)
        if trace.events:
            self._events.update(trace.events)
        for name in record.ignored:
            self._ignored[label(name)] += 1
        if (reason := record.reason) is not None:
            limited = reason.cause, str(reason.facts.get("unit", "")), str(reason.facts.get("per", ""))
            refusal = (tenant, *limited)
            if len(self._refusals) >= self.tenants.max_series and refusal not in self._refusals:
                refusal = (OTHERS, *limited)
            self._refusals[refusal] += 1
        if record.guards:
            self._guards.update(record.guards)
        for guard, seconds in record.guard_seconds or ():
            self._judged[guard].observe(seconds, record.exported)
        for unit, per in record.shadowed:
            self._shadowed[tenant, unit, per] += 1

    def _payer(self, tenant: str, model: str) -> tuple[str, str]:
        """The labels of charged amounts."""
        payer = (tenant, model)
        if len(self._prompt_tokens) >= self.tenants.max_series and payer not in self._prompt_tokens:
            return OTHERS, OTHERS
        return payer

    def refused(self, status: int, code: str) -> None:
        """Count a rejection by the server before there was a request."""
        self._refused[code] += 1
        self.recent.refused(status, code, time.time())

    def watch(self, gauges: Collector) -> None:
        """Add gauges that are read at each scrape."""
        self.registry.register(gauges)

    # ── the scrape ────────────────────────────────────────────────────────────────────────────────────

    def collect(self) -> Iterator[Metric]:
        requests = CounterMetricFamily("headrace_requests", "Requests ended.", labels=OUTCOME)
        for outcome, count in self._requests.items():
            requests.add_metric([str(label) for label in outcome], count)
        tokens = CounterMetricFamily("headrace_tokens", "Tokens charged.", labels=("tenant", "model", "type"))
        for kind, counter in (("prompt", self._prompt_tokens), ("completion", self._completion_tokens)):
            for payer, count in counter.items():
                tokens.add_metric([*payer, kind], count)
        batch_tokens = CounterMetricFamily(
            "headrace_batch_tokens",
            "The part of the tokens that lines of batches used.",
            labels=("tenant", "model", "type"),
        )
        for labels, count in self._batch_tokens.items():
            batch_tokens.add_metric(labels, count)
        yield batch_tokens
        refused = CounterMetricFamily(
            "headrace_refused", "Refused before they became requests: malformed, too slow, too many.", labels=("code",)
        )
        for code, count in self._refused.items():
            refused.add_metric([code], count)
        ignored = CounterMetricFamily(
            "headrace_ignored_fields", "Requests with a field that the model has no use for.", labels=("field",)
        )
        for name, count in self._ignored.items():
            ignored.add_metric([name], count)
        guards = CounterMetricFamily(
            "headrace_guard_verdicts", "Texts that guards have found.", labels=("guard", "action", "mode", "on")
        )
        for verdict, count in self._guards.items():
            guards.add_metric(verdict, count)
        rows = CounterMetricFamily("headrace_rows", "Rows of tensors charged.", labels=("tenant", "model"))
        device = CounterMetricFamily(
            "headrace_device_seconds",
            "Seconds of models' devices, where servers report them.",
            labels=("tenant", "model"),
        )
        for payer, count in self._rows.items():
            rows.add_metric(payer, count)
            device.add_metric(payer, self._device_ms[payer] / 1000)
        refusals = CounterMetricFamily(
            "headrace_refusals",
            "Requests refused, by cause: a credential, a right, a model, a limit or the capacity.",
            labels=("tenant", "cause", "unit", "per"),
        )
        for refusal, count in self._refusals.items():
            refusals.add_metric(refusal, count)
        yield from (requests, tokens, rows, device, refused, refusals, ignored, guards, *self._money())
        yield from (*families(self._events), *self._histograms(), *self._steps.collect())
        yield from (*self._generative.collect(), *self._tensors.collect())

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
        judged = HistogramMetricFamily(
            "headrace_guard_verdict_seconds", "Time of a verdict of a guard that judges.", labels=("guard",)
        )
        for guard, seconds in self._judged.items():
            judged.add_metric([guard], seconds.buckets(), seconds.sum)
        yield from (duration, first_chunk, overhead, judged)
