"""Usage of a host: its requests, its writer and its database."""

from pathlib import Path
from typing import Any

from adapters.types import Usage
from config.schema.money import Money
from gateway.features.journal.files import WaitingFiles
from gateway.features.journal.sink import RequestSink
from gateway.features.usage.labels import HOUR
from gateway.features.usage.report import UsageQuery
from gateway.features.usage.writer import UsageWriter
from gateway.telemetry.record import Record
from tests.support.gateways import PEPPER, config

NOVEMBER = 1_793_491_200  # 2026-11-01 in UTC


def record(tenant: str = "acme", model: str = "m", at: float = NOVEMBER, picos: int = 7, **fields: Any) -> Record:
    one = Record("id", "chat", "client", 10.0)
    one.tenant, one.key, one.model, one.time = tenant, f"{tenant}-key", model, at
    one.usage, one.cost = Usage(3, 2), Money(picos, "usd")
    for name, value in fields.items():
        setattr(one, name, value)
    return one


def counting(folder: Path, users: int = 0) -> RequestSink:
    """A process that stores usage alone."""
    sink = RequestSink(folder)
    sink.configure(config(usage={"users": users}))
    return sink


class Host:
    """A host with a writer, at a time of the test."""

    def __init__(self, folder: Path, database: str) -> None:
        self.now = float(NOVEMBER)
        self.config = config(state={"database": database}, usage={"folder": str(folder)})
        self.folder = folder
        self.restart()

    def restart(self) -> None:
        """Begin another writer."""
        self.files = WaitingFiles(lambda: self.config, retained=0)
        self.writer = UsageWriter(lambda: self.config, lambda: PEPPER, self.files, lambda: self.now)

    async def rows(self, **query: Any) -> list[dict[str, Any]]:
        store = await self.writer.store()
        return store.report(UsageQuery(NOVEMBER // HOUR - 24 * 60, NOVEMBER // HOUR + 24 * 60)._replace(**query))
