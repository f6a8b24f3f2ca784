"""Connections to a pool's servers, and the credentials for them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from pydantic import SecretStr

from adapters.http1.client import Client
from adapters.http1.message import encode_fields
from adapters.upstreams import egress
from adapters.upstreams.provided.client import DeferringClient
from config.schema.config import PoolConfig

if TYPE_CHECKING:
    from adapters.http2.channel import Channel
    from adapters.registry import Address


BESIDE = 8
"""Connections for requests other than inference: management and status."""


def credentials(pool: PoolConfig, other: SecretStr | None = None) -> list[tuple[str, str]]:
    """Return the header fields that authenticate the gateway at a pool's servers, by the pool's key or by `other`.

    The key is never a client's and is never logged.
    """
    secret = other or pool.key
    if secret is None:
        return []
    name, key = pool.key_header or pool.protocol.key_header, secret.get_secret_value()
    return [(name.lower(), f"Bearer {key}" if name.lower() == "authorization" else key)]


def fields_of(pool: PoolConfig) -> list[tuple[str, str]]:
    """Return the header fields of every request to a pool's servers: its own, and its credentials."""
    own = [
        (header.name.lower(), header.secret.get_secret_value() if header.secret is not None else header.value or "")
        for header in pool.headers
    ]
    return [*own, *credentials(pool)]


def http1_client(pool: PoolConfig, address: Address) -> Client:
    """Return an HTTP/1.1 client of one endpoint."""
    if pool.provider_batches is not None:
        return DeferringClient(address.url, pool=pool.name, **_options(pool, address))
    return plain_client(pool, address)


def plain_client(pool: PoolConfig, address: Address) -> Client:
    """Return a client that sends every request."""
    return Client(address.url, **_options(pool, address))


def _options(pool: PoolConfig, address: Address) -> dict[str, Any]:
    return {
        "tls": address.tls,
        "connect_timeout": pool.connect_timeout,
        # Health checks have a connection of their own: a full server is not an unhealthy server.
        "max_connections": pool.max_connections + (pool.probe is not None),
        "server_name": _server_name(pool, address),
        "fields": encode_fields(fields_of(pool)),
        "proxy": egress.proxy_of(pool.proxy, address.url),
        "max_answer": pool.max_answer,
    }


def beside(pool: PoolConfig, address: Address, port: int, key: SecretStr | None) -> Client:
    """Return a client of another port of the same server, which has another key or no key."""
    parts = urlsplit(address.url)
    host = parts.hostname or ""
    written = f"[{host}]" if ":" in host else host
    return Client(
        f"{parts.scheme}://{written}:{port}",
        tls=address.tls,
        connect_timeout=pool.connect_timeout,
        max_connections=BESIDE,
        server_name=_server_name(pool, address),
        fields=encode_fields(credentials(pool, key)) if key else b"",
        proxy=egress.proxy_of(pool.proxy, address.url),
    )


def grpc_channel(pool: PoolConfig, address: Address, max_message: int) -> Channel:
    """Return a gRPC channel with messages of at most `max_message` bytes. Raises `ImportError` without the extra."""
    from adapters.http2 import channel

    return channel.Channel(
        address.url,
        tls=address.tls,
        connect_timeout=pool.connect_timeout,
        max_connections=pool.max_connections,
        max_message=max_message,
        server_name=_server_name(pool, address),
        fields=channel.encode_fields(fields_of(pool)),
    )


def names(pool: PoolConfig) -> dict[str, Any]:
    """Return the adapter's argument for the name that the pool's servers use for the model."""
    return {"model": pool.model_name}


def probe_path(pool: PoolConfig) -> dict[str, Any]:
    """Return the adapter's argument for the path of the health check, if it is configured."""
    return {"probe": pool.probe.path} if pool.probe is not None and pool.probe.path is not None else {}


def _server_name(pool: PoolConfig, address: Address) -> str | None:
    return (pool.tls.server_name if pool.tls else None) or address.server_name
