"""What speaks to an endpoint: one line a protocol."""

import ssl
from collections.abc import Callable
from typing import Any

from adapters.base import Adapter
from adapters.http1.client import Client
from adapters.oip_http import MAX_ANSWER, OipHttpAdapter
from adapters.openai import OpenAIAdapter
from config.schema import PoolConfig
from gateway.discovery.target import Target

Made = Callable[[PoolConfig, Target, ssl.SSLContext | None], Adapter]


class MissingExtra(Exception):
    """What a protocol needs is not installed. The message says how to get it."""


def adapter_of(pool: PoolConfig, target: Target, tls: ssl.SSLContext | None) -> Adapter:
    """For one endpoint of the pool. Raises `MissingExtra`."""
    return _ADAPTERS[pool.protocol](pool, target, tls)


def runtime_adapter(pool: PoolConfig, client: Client) -> Adapter:
    """For the pool's bundled server."""
    assert pool.runtime is not None
    if pool.runtime.kind == "tensor":
        return OipHttpAdapter(client, model=pool.model_name)
    return OpenAIAdapter(client, model=pool.model_name)


def _openai(pool: PoolConfig, target: Target, tls: ssl.SSLContext | None) -> Adapter:
    return OpenAIAdapter(_http1(pool, target, tls), **_names(pool), **_probe(pool))


def _oip_http(pool: PoolConfig, target: Target, tls: ssl.SSLContext | None) -> Adapter:
    return OipHttpAdapter(_http1(pool, target, tls), binary=pool.binary, **_names(pool), **_probe(pool))


def _http1(pool: PoolConfig, target: Target, tls: ssl.SSLContext | None) -> Client:
    return Client(
        target.url,
        tls=tls,
        connect_timeout=pool.connect_timeout,
        # A server that is full is not ill: its health check has a connection of its own.
        max_connections=pool.max_connections + (pool.probe is not None),
        server_name=_server_name(pool, target),
    )


def _server_name(pool: PoolConfig, target: Target) -> str | None:
    return (pool.tls.server_name if pool.tls else None) or target.server_name


def _names(pool: PoolConfig) -> dict[str, Any]:
    return {"model": pool.model, "key": pool.key.get_secret_value() if pool.key else None}


def _probe(pool: PoolConfig) -> dict[str, str]:
    return {"probe": pool.probe.path} if pool.probe is not None and pool.probe.path is not None else {}


def _oip_grpc(pool: PoolConfig, target: Target, tls: ssl.SSLContext | None) -> Adapter:
    try:
        from adapters.http2.channel import Channel
        from adapters.oip_grpc import OipGrpcAdapter
    except ImportError:
        raise MissingExtra("oip-grpc needs more than is installed: pip install 'headrace[grpc]'") from None
    channel = Channel(
        target.url,
        tls=tls,
        connect_timeout=pool.connect_timeout,
        max_connections=pool.max_connections,
        max_message=MAX_ANSWER,
        server_name=_server_name(pool, target),
    )
    return OipGrpcAdapter(channel, **_names(pool))


_ADAPTERS: dict[str, Made] = {"openai": _openai, "oip-http": _oip_http, "oip-grpc": _oip_grpc}
