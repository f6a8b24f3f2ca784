"""Endpoints as Envoy names them, `IP:PORT`, and the endpoints that a request may have."""

import ipaddress
from collections.abc import Iterable
from functools import lru_cache
from urllib.parse import urlsplit

_PORTS = {"http": 80, "https": 443}


@lru_cache(maxsize=4096)
def destination(url: str) -> str | None:
    """The address of an endpoint's URL; None for a URL with a name, and for a Unix socket: Envoy looks up no names."""
    parts = urlsplit(url)
    port = _PORTS.get(parts.scheme)
    if port is None or parts.hostname is None:
        return None
    try:
        address = ipaddress.ip_address(parts.hostname)
    except ValueError:
        return None
    host = f"[{address}]" if address.version == 6 else str(address)
    return f"{host}:{parts.port or port}"


@lru_cache(maxsize=4096)
def _normalized(address: str) -> str | None:
    return destination(f"http://{address}")


class Subset:
    """The endpoints that a proxy permits for a request; all of them by default."""

    __slots__ = ("_permitted",)

    def __init__(self, addresses: Iterable[str] | None) -> None:
        self._permitted = None if addresses is None else frozenset(map(_normalized, addresses))

    def __contains__(self, url: object) -> bool:
        address = destination(url) if isinstance(url, str) else None
        return address is not None and (self._permitted is None or address in self._permitted)
