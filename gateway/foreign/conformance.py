"""`headrace conformance`: runs the conformance suite against a server."""

import asyncio
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from adapters.conformance.cell import Cell
from adapters.conformance.foreign import foreign
from adapters.conformance.suite import CHECKS, examine
from adapters.detection.detect import detect
from adapters.errors import InferenceError
from adapters.registry import Unmakeable, make
from config.schema.config import PoolConfig
from gateway.foreign.address import KEY, address_of, pool_at, stop

MARKS = {"passed": "[green]passed[/]", "failed": "[red]failed[/]", "absent": "[dim]–[/]"}


def conformance(
    url: Annotated[str, typer.Argument(help="http://HOST:PORT, https://HOST:PORT or unix:/PATH.")],
    protocol: Annotated[
        str, typer.Option(help="Protocol, as in a pool; another package may provide it. Detected when not given.")
    ] = "",
    model: Annotated[str, typer.Option(help="Model to call. The first that the server lists when not given.")] = "",
    key: Annotated[str | None, typer.Option(envvar=KEY, help="Key that the server expects.")] = None,
    key_header: Annotated[str | None, typer.Option(help="Header of the key. A bearer token when not given.")] = None,
    ca: Annotated[
        Path | None, typer.Option(help="Root certificates for https://. The system's when not given.")
    ] = None,
    metrics: Annotated[
        str, typer.Option(metavar="URL", help="URL of the metrics, if not /metrics of the server.")
    ] = "",
    load: Annotated[
        str,
        typer.Option(metavar="MODEL", help="A model that the suite may unload and load again. None when not given."),
    ] = "",
) -> None:
    """Run the conformance suite against a server and its adapter.

    The model is asked some small questions; failures are had from an impostor on loopback. Exit status 1 where
    something failed.
    """
    pool = pool_at(url, protocol or "auto", key, key_header, ca)
    try:
        cells = asyncio.run(_examined(pool, model, metrics, load))
    except (InferenceError, Unmakeable) as error:
        stop(f"{url}: {error}", 1)
    Console().print(_table(cells))
    failed = sum(cell.verdict == "failed" for cell in cells)
    typer.echo(f"{failed} of {len(cells)} failed" if failed else f"{len(cells)} features, none failed")
    raise typer.Exit(1 if failed else 0)


async def _examined(pool: PoolConfig, model: str, metrics: str, load: str) -> list[Cell]:
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


def _table(cells: list[Cell]) -> Table:
    first = cells[0]
    table = Table(title=f"{first.system} {first.version}".strip())
    for column in ("feature", "", "why"):
        table.add_column(column, overflow="fold")
    for cell in cells:
        table.add_row(cell.feature, MARKS[cell.verdict], cell.why)
    return table
