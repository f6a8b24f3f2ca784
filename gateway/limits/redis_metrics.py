"""Metrics of the Redis ledger: its availability, and the updates that Redis has not received yet."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

if TYPE_CHECKING:
    from gateway.limits.remote.redis_ledger import RedisLedger  # which needs an extra


class RedisGauges(Collector):
    """Reads the Redis ledger at each scrape."""

    def __init__(self, redis: "RedisLedger") -> None:
        self._redis = redis

    def collect(self) -> Iterator[Metric]:
        up = GaugeMetricFamily("headrace_redis_up", "1 while Redis counts the limits with `count: exact` or `leased`.")
        up.add_metric([], self._redis.up)
        unsent = GaugeMetricFamily("headrace_redis_unsent", "Updates of limits that Redis has not received yet.")
        unsent.add_metric([], self._redis.unsent)
        breaks = CounterMetricFamily(
            "headrace_redis_breaks", "Losses of the connection to Redis, or too slow responses."
        )
        breaks.add_metric([], self._redis.link.breaks)
        yield from (up, unsent, breaks)
