"""Parses the address of a server on a command line."""

import os
from pathlib import Path
from typing import Any, NoReturn

import typer
from pydantic import ValidationError

from adapters.registry import Address
from adapters.upstreams import dial
from config.document import parse
from config.loader import read_sections
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


_OF_A_POOL = ("key", "key_header", "credentials", "tls", "proxy")


def as_pool(probed: PoolConfig, name: str, path: Path) -> tuple[PoolConfig, dict[str, Any]]:
    """The probed pool with the credentials and the connections of a pool of a file, and these fields as the file has
    them. Its secrets are references there. Reports a wrong file or name and exits with status 2."""
    reading = read_sections(path)
    if reading.config is None:
        stop("\n".join(str(problem) for problem in reading.problems))
    pool = next((pool for pool in reading.config.pools if pool.name == name), None)
    if pool is None:
        names = ", ".join(pool.name for pool in reading.config.pools)
        stop(f"error: {path} has no pool {name}; it has {names or 'none'}")
    credentials, region = pool.credentials, getattr(pool.protocol, "region", None)
    if credentials is not None and (aws := credentials.aws) is not None and aws.region is None:
        credentials = credentials.model_copy(update={"aws": aws.model_copy(update={"region": region})})
    own = {each: getattr(pool, each) for each in _OF_A_POOL} | {"credentials": credentials}
    document: Any = parse(path).data
    written = next(each for each in document["pools"] if each.get("name") == name)
    return probed.model_copy(update=own), {each: written[each] for each in _OF_A_POOL if each in written}


def stop(sentence: str, status: int = 2) -> NoReturn:
    """End the command."""
    typer.echo(sentence, err=True)
    raise typer.Exit(status)
