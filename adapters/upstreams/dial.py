"""How a pool's servers are reached, as the configuration has it: connections, and who we are to them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from pydantic import SecretStr

from adapters.http1.client import Client, encode_fields
from config.schema.config import PoolConfig

if TYPE_CHECKING:
    from adapters.http2.channel import Channel
    from adapters.registry import Address


BESIDE = 8
"""Connections for what is asked beside the requests themselves."""


def credentials(pool: PoolConfig, other: SecretStr | None = None) -> list[tuple[str, str]]:
    """The header fields that tell a pool's servers who we are, by the pool's key or by the `other`.

    Never a client's, and never logged.
    """
    secret = other or pool.key
    if secret is None:
        return []
    name, key = pool.key_header or pool.protocol.key_header, secret.get_secret_value()
    return [(name.lower(), f"Bearer {key}" if name.lower() == "authorization" else key)]


def http1_client(pool: PoolConfig, address: Address) -> Client:
    """Connections over HTTP/1.1."""
    return Client(
        address.url,
        tls=address.tls,
        connect_timeout=pool.connect_timeout,
        # A server that is full is not ill: its health check has a connection of its own.
        max_connections=pool.max_connections + (pool.probe is not None),
        server_name=_server_name(pool, address),
        fields=encode_fields(credentials(pool)),
    )


def beside(pool: PoolConfig, address: Address, port: int, key: SecretStr | None) -> Client:
    """Connections to another port of the same server, where we are known by another key, or by none."""
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
    )


def grpc_channel(pool: PoolConfig, address: Address, max_message: int) -> Channel:
    """Connections for gRPC, with messages up to so many bytes. Raises `ImportError` without the extra."""
    from adapters.http2 import channel

    return channel.Channel(
        address.url,
        tls=address.tls,
        connect_timeout=pool.connect_timeout,
        max_connections=pool.max_connections,
        max_message=max_message,
        server_name=_server_name(pool, address),
        fields=channel.encode_fields(credentials(pool)),
    )


def names(pool: PoolConfig) -> dict[str, Any]:
    """What its servers call the model."""
    return {"model": pool.model_name}


def probe_path(pool: PoolConfig) -> dict[str, Any]:
    """What is asked for its health, where that is written."""
    return {"probe": pool.probe.path} if pool.probe is not None and pool.probe.path is not None else {}


def _server_name(pool: PoolConfig, address: Address) -> str | None:
    return (pool.tls.server_name if pool.tls else None) or address.server_name
