"""Parses the address of a server on a command line."""

import os
from pathlib import Path
from typing import Any, NoReturn

import typer
from pydantic import ValidationError

from adapters.registry import Address
from adapters.upstreams import dial
from config.schema.config import PoolConfig

KEY = "HEADRACE_UPSTREAM_KEY"


def pool_at(
    url: str, protocol: str | dict[str, Any], key: str | None, key_header: str | None, ca: Path | None
) -> PoolConfig:
    """The pool as the YAML file would define it. Reports an invalid address and exits with status 2."""
    written: dict[str, Any] = {"name": "probed", "protocol": protocol, "endpoints": [{"url": url}]}
    if key:
        written |= {"key": key, "key_header": key_header}
    if ca is not None:
        written["tls"] = {"ca": os.fspath(ca)}
    try:
        return PoolConfig.model_validate(written)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        message = str(first["ctx"]["error"]) if first["type"] == "value_error" else first["msg"]
        stop(f"error: {'.'.join(str(part) for part in first['loc'][-1:])}: {message}")


def address_of(pool: PoolConfig) -> Address:
    """The address of a pool's endpoint."""
    url = pool.endpoints[0].url
    try:
        return Address(url, tls=dial.tls_context(pool, pool.protocol.name) if url.startswith("https://") else None)
    except OSError as error:
        stop(f"error: tls: {error}")


def as_written(key: str | None, key_header: str | None, ca: Path | None) -> dict[str, Any]:
    """The same fields for a file, without secrets."""
    fields: dict[str, Any] = {"key": f"${{{KEY}}}"} if key else {}
    if key and key_header:
        fields["key_header"] = key_header
    if ca is not None:
        fields["tls"] = {"ca": os.fspath(ca)}
    return fields


def stop(sentence: str, status: int = 2) -> NoReturn:
    """End the command."""
    typer.echo(sentence, err=True)
    raise typer.Exit(status)
