"""The proxy to a server: the pool's own, or that of the environment, by curl's rules for `NO_PROXY`."""

import os
from collections.abc import Mapping
from contextlib import suppress
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from urllib.parse import urlsplit

from adapters.http1.proxy import Proxy
from config.schema.protocols.egress import DIRECT, ProxyConfig

_INTERNAL = (".localhost", ".local", ".internal", ".svc")


def proxy_of(config: ProxyConfig | None, url: str, environment: Mapping[str, str] = os.environ) -> Proxy | None:
    """The proxy to a server; None for a direct connection. A proxy of the environment that is not an http:// URL is
    not used."""
    if config is not None:
        user = None if config.user is None else config.user.get_secret_value()
        return None if config.url == DIRECT else Proxy.of(config.url, user)
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or _is_internal(parts.hostname or ""):
        return None
    proxy = _variable(environment, f"{parts.scheme}_proxy") or _variable(environment, "all_proxy")
    if not proxy or _is_exempt(parts.hostname or "", _variable(environment, "no_proxy")):
        return None
    with suppress(ValueError):
        return Proxy.of(proxy)
    return None


def _variable(environment: Mapping[str, str], name: str) -> str:
    return environment.get(name) or environment.get(name.upper()) or ""


def _is_internal(host: str) -> bool:
    """Whether a host is certainly inside: a private or local address, or a name without a domain or of a cluster."""
    if (address := _address(host)) is not None:
        return not address.is_global
    return "." not in host.rstrip(".") or f".{host.rstrip('.').lower()}".endswith(_INTERNAL)


def _address(host: str) -> IPv4Address | IPv6Address | None:
    with suppress(ValueError):
        return ip_address(host)
    return None


def _is_exempt(host: str, listed: str) -> bool:
    """Whether `NO_PROXY` lists a host: `*`, a domain with all below it, an address, or a network."""
    host, address = host.rstrip(".").lower(), _address(host)
    for entry in listed.replace(",", " ").lower().split():
        if entry == "*":
            return True
        if address is not None:
            with suppress(ValueError):
                if address in ip_network(entry.strip("[]"), strict=False):
                    return True
        else:
            domain = entry.strip(".")
            if domain and (host == domain or host.endswith(f".{domain}")):
                return True
    return False
