"""The writers of a host: what its processes have counted and recorded goes to the state database in the background."""

from collections.abc import Awaitable, Callable

from prometheus_client.registry import Collector

from config.schema.config import Config
from gateway.features.alerts.metrics import AlertMetrics
from gateway.features.alerts.writer import AlertWriter
from gateway.features.journal.files import WaitingFiles
from gateway.features.journal.folders import prepare_folders
from gateway.features.quota.report import StorageReport
from gateway.features.requests.metrics import RequestsMetrics
from gateway.features.requests.writer import RequestWriter
from gateway.features.usage.metrics import UsageMetrics
from gateway.features.usage.writer import UsageWriter


class HostWriters:
    """`prepare` before any process starts, then run `works`. `aclose` after all processes have ended."""

    def __init__(self, config: Callable[[], Config], pepper: Callable[[], bytes]) -> None:
        files = WaitingFiles(config)
        self.usage = UsageWriter(config, pepper, files)
        self.requests = RequestWriter(config, files)
        self.alerts = AlertWriter(config, pepper, self.usage)
        self.storage = StorageReport(config, pepper)

    def prepare(self, config: Config) -> None:
        """Create the folders where data waits. Raises `StartError`."""
        prepare_folders(config)

    def collectors(self) -> tuple[Collector, ...]:
        """The metrics of the writers."""
        return UsageMetrics(self.usage), RequestsMetrics(self.requests), AlertMetrics(self.alerts), self.storage

    def works(self) -> tuple[tuple[str, Callable[[], Awaitable[None]]], ...]:
        """The work of the background tasks, with their names."""
        return (
            ("usage", self.usage.run),
            ("requests", self.requests.run),
            ("budgets", self.alerts.run_comparisons),
            ("webhooks", self.alerts.run_deliveries),
            ("storage", self.storage.run),
        )

    async def aclose(self) -> None:
        """Write the rest, and close the databases."""
        await self.alerts.aclose()
        await self.requests.aclose()
        await self.usage.aclose()
        await self.storage.aclose()
