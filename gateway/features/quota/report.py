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
from gateway.telemetry.metrics import TenantLabels

INTERVAL = 60.0
"""Seconds between two readings for the metrics."""
PATIENCE = 1.0
"""Seconds that a scrape waits for a reading."""


class StorageReport(Collector):
    """`read` for the admin API; `refresh` before each scrape; then `aclose`."""

    def __init__(self, config: Callable[[], Config], pepper: Callable[[], bytes]) -> None:
        self._config = config
        self._pepper = pepper
        self._database = Opened(lambda: StateDatabase(self._config().state.database, self._pepper(), QUOTA))
        self._outages = Outages("stored bytes", StateError)
        self._latest: dict[str, int] = {}
        self._read_at = -INTERVAL
        self._reading: asyncio.Task[None] | None = None

    async def read(self) -> dict[str, dict[str, int]]:
        """The bytes of each tenant of the file, and its quota. Raises `StateError`."""
        used = self._latest = await asyncio.to_thread(self._read)
        tenants = self._config().tenants
        return {tenant.name: {"used": used.get(tenant.name, 0), "quota": tenant.storage_quota} for tenant in tenants}

    async def refresh(self) -> None:
        """Read for the metrics what is older than `INTERVAL`. A database that is slow does not delay a scrape for
        long."""
        now = asyncio.get_running_loop().time()
        if now - self._read_at >= INTERVAL and (self._reading is None or self._reading.done()):
            self._read_at, self._reading = now, asyncio.create_task(self._refresh())
        if self._reading is not None:
            await asyncio.wait((self._reading,), timeout=PATIENCE)

    async def _refresh(self) -> None:
        with self._outages.noting("reading"):
            await self.read()

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
        if self._reading is not None:
            await asyncio.wait((self._reading,))
        await asyncio.to_thread(self._database.close)

    def _read(self) -> dict[str, int]:
        with self._database().transaction() as connection:
            return used_by_all(connection)
