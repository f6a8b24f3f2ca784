"""One run of the conformance suite against a server of any kind, and the table of its results."""

from typing import Any

from rich.table import Table

from adapters.conformance.foreign import foreign
from adapters.conformance.matrix import Cell
from adapters.conformance.suite import CHECKS, examine
from adapters.detection.detect import detect
from adapters.registry import make
from config.schema.config import PoolConfig
from gateway.process.foreign.address import address_of, stop
from gateway.terminal import plain

MARKS = {"passed": "[green]passed[/]", "failed": "[red]failed[/]", "absent": "[dim]–[/]"}


async def examined(pool: PoolConfig, model: str, metrics: str, load: str) -> list[Cell]:
    """Run the suite. Detects the protocol and the model if they are not given."""
    version = ""
    if pool.protocol.name == "auto" or not model:
        detection = await detect(pool, address_of(pool))
        if detection is None and pool.protocol.name == "auto":
            stop("error: the server's protocol cannot be detected: give it with --protocol", 2)
        if detection is not None:
            way = detection.pools[0]
            version = detection.version
            model = model or next((one.name for one in way.models), "")
            if pool.protocol.name == "auto":
                pool = _speaking(pool, dict(way.protocol))
    if not model:
        stop("error: the server lists no model: name one with --model", 2)
    adapter = make(pool, address_of(pool))
    try:
        subject = await foreign(pool, adapter, model, version=version, metrics_url=metrics, load=load)
    finally:
        await adapter.aclose()
    return [await examine(check, subject) for check in CHECKS]


def _speaking(pool: PoolConfig, protocol: dict[str, Any]) -> PoolConfig:
    written = pool.model_dump(include={"name", "endpoints", "key", "key_header", "tls"})
    return PoolConfig.model_validate({**written, "protocol": protocol})


def table_of(cells: list[Cell]) -> Table:
    """One row for each feature."""
    first = cells[0]
    table = Table(title=plain(f"{first.system} {first.version}".strip()), title_style="italic")
    for column in ("feature", "", "why"):
        table.add_column(column, overflow="fold")
    for cell in cells:
        table.add_row(cell.feature, MARKS[cell.verdict], plain(cell.why))
    return table
