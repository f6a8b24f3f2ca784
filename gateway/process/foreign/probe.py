"""`headrace probe`: identifies a server and prints its pool."""

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from adapters.detection.detect import SECONDS, detect, written
from adapters.errors import InferenceError
from adapters.registry import Unmakeable
from gateway.process.foreign.address import KEY, address_of, as_pool, as_written, pool_at, stop

Names = list[str] | None


def probe(
    url: Annotated[str, typer.Argument(help="http://HOST:PORT, https://HOST:PORT or unix:/PATH.")],
    key: Annotated[str | None, typer.Option(envvar=KEY, help="Key that the server expects.")] = None,
    key_header: Annotated[str | None, typer.Option(help="Header of the key. A bearer token when not given.")] = None,
    ca: Annotated[
        Path | None, typer.Option(help="Root certificates for https://. The system's when not given.")
    ] = None,
    model: Annotated[
        Names, typer.Option(help="Name of a model, for servers that do not list theirs. May be repeated.")
    ] = None,
    credentials: Annotated[
        str | None, typer.Option(help="Pool of --config whose key, credentials, TLS and proxy the probe uses.")
    ] = None,
    config: Annotated[Path | None, typer.Option("--config", "-c", help="YAML file with that pool.")] = None,
    timeout: Annotated[float, typer.Option(min=0.1, max=300, help="Seconds for the whole probe.")] = SECONDS,
) -> None:
    """Identify a server and its models, and print a YAML file for `headrace serve`.

    Sends GET requests, calls that list models, and one empty chat that Bedrock refuses; follows no redirect. Exit
    status 1 if the server is unknown or does not answer.
    """
    pool, fields = pool_at(url, "auto", key, key_header, ca), as_written(key, key_header, ca)
    if (credentials is None) != (config is None):
        stop("error: --credentials POOL goes with --config FILE")
    if credentials is not None and config is not None:
        if key_header is not None or ca is not None:
            stop("error: --credentials has the pool's own key and TLS: leave out --key-header and --ca")
        pool, fields = as_pool(pool, credentials, config)
    try:
        detection = asyncio.run(detect(pool, address_of(pool), names=tuple(model or ()), seconds=timeout))
    except InferenceError as error:
        stop(f"{url}: {error.message}", 1)
    except Unmakeable as error:
        stop(f"error: {error}")
    if detection is None:
        stop(f"{url}: the server answers, but its protocol is not supported. Use `protocol: http` for an HTTP app.", 1)
    typer.echo(written(detection, url, fields), nl=False)
