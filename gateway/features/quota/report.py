"""The bytes that all tenants store, for the admin API and the metrics of a host."""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator

from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from config.schema.config import Config
from gateway.auth.state import StateDatabase
from gateway.features.quota.meter import QUOTA
from gateway.features.quota.room import used_by_all
from gateway.state.errors import StateError
from gateway.state.insist import Outages
from gateway.state.opened import Opened
from gateway.state.rounds import Rounds
from gateway.telemetry.metrics import TenantLabels

INTERVAL = 60.0
"""Seconds between two readings for the metrics."""


class StorageReport(Collector):
    """`read` for the admin API; `run` until cancelled for the metrics; then `aclose`."""

    def __init__(self, config: Callable[[], Config], pepper: Callable[[], bytes]) -> None:
        self._config = config
        self._pepper = pepper
        self._database = Opened(lambda: StateDatabase(self._config().state.database, self._pepper(), QUOTA))
        self._rounds = Rounds(Outages("stored bytes", StateError), "reading", self.read, lambda: INTERVAL, at_once=True)
        self._latest: dict[str, int] = {}

    async def read(self) -> dict[str, dict[str, int]]:
        """The bytes of each tenant of the file, and its quota. Raises `StateError`."""
        used = self._latest = await asyncio.to_thread(self._read)
        tenants = self._config().tenants
        return {tenant.name: {"used": used.get(tenant.name, 0), "quota": tenant.storage_quota} for tenant in tenants}

    async def run(self) -> None:
        """Read for the metrics until cancelled."""
        await self._rounds.run()

    def collect(self) -> Iterator[Metric]:
        used = GaugeMetricFamily("headrace_stored_bytes", "Bytes that a tenant stores.", labels=["tenant"])
        quota = GaugeMetricFamily("headrace_stored_bytes_quota", "Most bytes of a tenant.", labels=["tenant"])
        labels, config = TenantLabels(), self._config()
        labels.configure(config.metrics)
        for family, values in (
            (used, self._latest),
            (quota, {each.name: each.storage_quota for each in config.tenants}),
        ):
            sums = Counter[str]()
            for tenant in config.tenants:
                sums[labels[tenant.name]] += values.get(tenant.name, 0)
            for label, value in sums.items():
                family.add_metric([label], value)
            yield family

    async def aclose(self) -> None:
        """Close the database."""
        await asyncio.to_thread(self._database.close)

    def _read(self) -> dict[str, int]:
        with self._database().transaction() as connection:
            return used_by_all(connection)
