"""Gauges that are read from their source at each scrape: endpoints, tenants, identity and workers."""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from config.schema.money import PICOS
from gateway.limits.account import Account
from gateway.telemetry.metrics import TenantLabels
from gateway.traffic.endpoint import Endpoint

if TYPE_CHECKING:
    from gateway.auth.jwks import Jwks


class IdentityGauges(Collector):
    """The availability of the key database, and the age of the public keys of token issuers."""

    def __init__(
        self, database_available: Callable[[], bool], keys_age: Callable[[], float], key_sets: "Sequence[Jwks]"
    ) -> None:
        self._available = database_available
        self._keys_age = keys_age
        self._key_sets = key_sets

    def collect(self) -> Iterator[Metric]:
        available = GaugeMetricFamily("headrace_key_database_available", "1 while the key database answers.")
        available.add_metric((), self._available())
        yield available
        keys_age = GaugeMetricFamily(
            "headrace_keys_age_seconds",
            "Seconds since the keys in use were those of the database; 0 while it answers, +Inf before the first time.",
        )
        keys_age.add_metric((), self._keys_age())
        yield keys_age
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
        tenants: TenantLabels,
        dropped_log_lines: Callable[[], int],
        clock: Callable[[], float],
    ) -> None:
        self._endpoints = endpoints
        self._accounts = accounts
        self._tenants = tenants
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
        sums: dict[str, tuple[int, float]] = {}
        for account in self._accounts():
            label = self._tenants[account.tenant]
            requests, tokens = sums.get(label, (0, 0))
            sums[label] = (requests + account.in_flight, tokens + account.reserved_tokens)
        for label, (requests, tokens) in sums.items():
            in_flight.add_metric((label,), requests)
            reserved.add_metric((label,), tokens)
        yield from (in_flight, reserved, self._budgets())

    def _budgets(self) -> Metric:
        """The remaining share of the budgets that all requests of a tenant use, the smallest for each label."""
        ratio = GaugeMetricFamily(
            "headrace_tenant_budget_remaining_ratio",
            "Remaining share of a tenant's budget in the current period.",
            labels=("tenant", "period"),
        )
        now, utc = self._clock(), time.time()
        smallest: dict[tuple[str, str], float] = {}
        for account in self._accounts():
            for allowance in account.always:
                if (spend := allowance.config.spend) is None:
                    continue
                label = (self._tenants[account.tenant], spend.period)
                allowance.look(now, utc)
                share = max(0.0, allowance.remaining(now, utc)["spend"] * PICOS / spend.picos) if spend.picos else 0.0
                smallest[label] = min(share, smallest.get(label, share))
        for labels, share in smallest.items():
            ratio.add_metric(labels, share)
        return ratio


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
