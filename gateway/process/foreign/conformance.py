"""`headrace conformance`: runs the conformance suite against a server."""

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from adapters.errors import InferenceError
from adapters.registry import Unmakeable
from gateway.process.foreign.address import KEY, pool_at, stop


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

    Sends small requests to the model; a stand-in on loopback produces the failures. Exit status 1 if a feature failed.
    """

    from gateway.process.foreign.examination import examined, table_of  # no other command needs the suite
    from gateway.terminal import show

    pool = pool_at(url, protocol or "auto", key, key_header, ca)
    try:
        cells = asyncio.run(examined(pool, model, metrics, load))
    except (InferenceError, Unmakeable) as error:
        stop(f"{url}: {error}", 1)
    show(table_of(cells))
    failed = sum(cell.verdict == "failed" for cell in cells)
    typer.echo(f"{failed} of {len(cells)} failed" if failed else f"{len(cells)} features, none failed")
    raise typer.Exit(1 if failed else 0)
