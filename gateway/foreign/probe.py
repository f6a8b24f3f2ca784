"""`headrace probe`."""

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from adapters.detection.detect import SECONDS, detect
from adapters.detection.written import written
from adapters.errors import InferenceError
from gateway.foreign.address import KEY, address_of, as_written, pool_at, stop

Names = list[str] | None


def probe(
    url: Annotated[str, typer.Argument(help="http://HOST:PORT, https://HOST:PORT or unix:/PATH.")],
    key: Annotated[str | None, typer.Option(envvar=KEY, help="What the server knows us by.")] = None,
    key_header: Annotated[str | None, typer.Option(help="The key's header, where it is no bearer token.")] = None,
    ca: Annotated[Path | None, typer.Option(help="Roots to trust for https://, instead of the system's.")] = None,
    model: Annotated[Names, typer.Option(help="A model that is there; for servers that do not list theirs.")] = None,
    timeout: Annotated[float, typer.Option(min=0.1, max=300, help="Seconds for all of it.")] = SECONDS,
) -> None:
    """Tell what a server is and which models it has, as YAML that `headrace serve` takes.

    Only GETs, and what lists models; redirects are not followed. Exit status 1 for a server that is not known or does
    not answer.
    """
    pool = pool_at(url, "auto", key, key_header, ca)
    try:
        found = asyncio.run(detect(pool, address_of(pool), names=tuple(model or ()), seconds=timeout))
    except InferenceError as error:
        stop(f"{url}: {error.message}", 1)
    if found is None:
        stop(f"{url}: this server answers, and is none of those known. An HTTP app is reached by `protocol: http`.", 1)
    typer.echo(written(found, url, as_written(key, key_header, ca)), nl=False)
