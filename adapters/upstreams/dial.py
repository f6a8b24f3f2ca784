"""Connections to a pool's servers: credentials, proxies and TLS."""

from __future__ import annotations

import logging
import ssl
from collections import Counter
from contextlib import suppress
from functools import lru_cache
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

from pydantic import SecretStr

from adapters.certificates import load_pair, modified, read_pair, read_roots
from adapters.http1.client import Client
from adapters.http1.message import encode_fields
from adapters.http1.proxy import proxy_of
from adapters.http1.signing import Credential
from adapters.registry import Address
from adapters.upstreams.deferral import DeferringClient
from config.schema.config import PoolConfig, UpstreamTls

if TYPE_CHECKING:
    from adapters.http2.channel import Channel  # needs an extra

log = logging.getLogger(__name__)
BESIDE = 8
"""Connections for requests other than inference: management and status."""


def credentials(pool: PoolConfig, other: SecretStr | None = None) -> list[tuple[str, str]]:
    """Return the header fields that authenticate the gateway at a pool's servers, by the pool's key or by `other`.

    The key is never a client's and is never logged.
    """
    secret = other or pool.key
    if secret is None:
        return []
    key = secret.get_secret_value()
    names = pool.protocol.key_headers if pool.key_header is None else (pool.key_header.lower(),)
    return [(name, f"Bearer {key}" if name == "authorization" else key) for name in names]


def fields_of(pool: PoolConfig) -> list[tuple[str, str]]:
    """Return the header fields of every request to a pool's servers: its own, and its credentials."""
    own = [
        (header.name.lower(), header.secret.get_secret_value() if header.secret is not None else header.value or "")
        for header in pool.headers
    ]
    return [*own, *credentials(pool)]


def credential_of(pool: PoolConfig, url: str) -> Credential | None:
    """Return the credential that the gateway makes for a pool's requests to `url`; None for a pool without one."""
    if pool.credentials is None:
        return None
    from adapters.credentials.making import make

    return make(pool.credentials, pool, url)


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
        "proxy": proxy_of(pool.proxy, address.url),
        "max_answer": pool.max_answer,
        "credential": credential_of(pool, address.url),
        "max_age": max_age(pool, address.url),
        "read": address.read,
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
        proxy=proxy_of(pool.proxy, address.url),
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
        max_age=max_age(pool, address.url),
    )


def max_age(pool: PoolConfig, url: str) -> float | None:
    """Return the age at which connections to `url` are replaced; None where no name may get another address."""
    host = "" if url.startswith("unix:") else urlsplit(url).hostname or ""
    with suppress(ValueError):
        ip_address(host)
        return None
    return pool.connection_age if host else None


def names(pool: PoolConfig) -> dict[str, Any]:
    """Return the adapter's argument for the name that the pool's servers use for the model."""
    return {"model": pool.model_name}


def probe_path(pool: PoolConfig) -> dict[str, Any]:
    """Return the adapter's argument for the path of the health check, if it is configured."""
    return {"probe": pool.probe.path} if pool.probe is not None and pool.probe.path is not None else {}


def _server_name(pool: PoolConfig, address: Address) -> str | None:
    return (pool.tls.server_name if pool.tls else None) or address.server_name


# TLS contexts for `https://` endpoints.

FileTimes = tuple[int, ...]


def file_times(tls: UpstreamTls | None) -> FileTimes:
    """Return the modification times of the TLS files: a renewed certificate has the same path."""
    paths = [path for path in (tls.ca, tls.cert, tls.key) if path] if tls is not None else []
    return tuple(map(modified, paths))


class _Loaded(NamedTuple):
    context: ssl.SSLContext
    expiry: float | None
    """Unix seconds at which the client certificate expires; None without one."""


_in_use: dict[tuple[UpstreamTls, str], _Loaded] = {}
"""The contexts whose files were valid at the last load, by their settings and protocol."""
MOST_IN_USE = 256
_failed: Counter[UpstreamTls] = Counter()
_refused: dict[UpstreamTls, FileTimes] = {}


def tls_context(pool: PoolConfig, spoken: str, *, renews: bool = False) -> ssl.SSLContext:
    """Return the TLS context of a pool, one for each protocol (`spoken`), since a context holds the ALPN protocol.

    While the files are being replaced, or do not belong together, this is the context of the files before. `renews`
    raises then, as for files that have never been valid: `OSError`.
    """
    config = pool.tls or UpstreamTls()
    try:
        made = _context(config, file_times(config), spoken)
    except OSError as error:
        is_new = _refused.get(config) != (refused := file_times(config))
        _refused[config] = refused
        _failed[config] += is_new
        if (before := _in_use.get((config, spoken))) is None or renews:
            raise
        if is_new:  # once for each state of the files
            log.error("pool %s: tls: %s: the certificate before stays in use", pool.name, error)
        return before.context
    if len(_in_use) >= MOST_IN_USE:
        _in_use.clear()
        _refused.clear()
    _in_use[config, spoken] = made
    return made.context


@lru_cache(maxsize=32)
def _context(config: UpstreamTls, times: FileTimes, spoken: str) -> _Loaded:
    """Create a context. All endpoints share it: reading the system's roots takes tens of milliseconds."""
    made = ssl.create_default_context(cadata=None if config.ca is None else read_roots(config.ca))
    expiry = None if config.cert is None else load_pair(made, read_pair(config.cert, config.key))
    return _Loaded(made, expiry)


def client_certificate(tls: UpstreamTls) -> tuple[float | None, int]:
    """The expiry of the client certificate in use, in Unix seconds, and the number of loads that failed."""
    expiries = [loaded.expiry for (config, _), loaded in _in_use.items() if config == tls and loaded.expiry is not None]
    return min(expiries, default=None), _failed[tls]
