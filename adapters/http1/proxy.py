"""A proxy between the gateway and an upstream: `CONNECT` for https, requests in absolute form for http."""

import asyncio
import logging
import os
import socket
from base64 import b64encode
from collections.abc import Mapping
from contextlib import suppress
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

from config.schema.protocols.egress import DIRECT, ProxyConfig

log = logging.getLogger(__name__)
MAX_HEAD = 16 * 1024


class Proxy(NamedTuple):
    """The address of a proxy, and the header field that authenticates the gateway there."""

    host: str
    port: int
    field: bytes = b""

    @classmethod
    def of(cls, url: str, user: str | None = None) -> "Proxy":
        """The proxy at `http://[USER:PASSWORD@]HOST:PORT`. Raises `ValueError` for another URL."""
        parts = urlsplit(url if "://" in url else f"http://{url}")
        if parts.scheme != "http" or not parts.hostname:
            raise ValueError("a proxy is an http:// URL")
        if user is None and parts.username is not None:
            user = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        credentials = b"" if user is None else b"Basic " + b64encode(user.encode())
        field = b"proxy-authorization: %b\r\n" % credentials if credentials else b""
        return cls(parts.hostname, parts.port or 80, field)

    async def tunnel(self, loop: asyncio.AbstractEventLoop, host: str, port: int) -> socket.socket:
        """Open a tunnel to a server. Raises `OSError`."""
        failure: OSError = OSError("its name has no address")
        for family, kind, protocol, _, address in await loop.getaddrinfo(self.host, self.port, type=socket.SOCK_STREAM):
            connection = socket.socket(family, kind, protocol)
            try:
                connection.setblocking(False)
                await loop.sock_connect(connection, address)
                await self._ask(loop, connection, f"[{host}]:{port}" if ":" in host else f"{host}:{port}")
                return connection
            except OSError as error:
                connection.close()
                failure = error
            except BaseException:
                connection.close()
                raise
        raise failure

    async def _ask(self, loop: asyncio.AbstractEventLoop, connection: socket.socket, server: str) -> None:
        name = server.encode("idna" if server.isascii() is False else "ascii")
        await loop.sock_sendall(connection, b"CONNECT %b HTTP/1.1\r\nhost: %b\r\n%b\r\n" % (name, name, self.field))
        head = b""
        # Nothing follows the head until the gateway speaks: it begins the handshake of TLS.
        while b"\r\n\r\n" not in head and len(head) < MAX_HEAD:
            if not (piece := await loop.sock_recv(connection, 4096)):
                break
            head += piece
        status = head.partition(b"\r\n")[0].decode("latin-1")[:200]
        code = status.split(" ")[1] if status.startswith("HTTP/1.") and " " in status else ""
        if not (code.startswith("2") and head.endswith(b"\r\n\r\n")):
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
            raise OSError(f"CONNECT was answered with {status!r}")


# The proxy to a server: the configured one, or that of the environment, by curl's rules for `NO_PROXY`.

_INTERNAL = (".localhost", ".local", ".internal", ".svc")


def proxy_of(config: ProxyConfig | None, url: str, environment: Mapping[str, str] = os.environ) -> Proxy | None:
    """The proxy to a server; None for a direct connection. A proxy of the environment that is not an http:// URL is
    not used."""
    if config is not None:
        user = None if config.user is None else config.user.get_secret_value()
        return None if config.url == DIRECT else Proxy.of(config.url, user)
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or is_internal(parts.hostname or ""):
        return None
    proxy = _variable(environment, f"{parts.scheme}_proxy") or _variable(environment, "all_proxy")
    port = parts.port or (443 if parts.scheme == "https" else 80)
    if not proxy or _is_exempt(parts.hostname or "", port, _variable(environment, "no_proxy")):
        return None
    try:
        return Proxy.of(proxy)
    except ValueError:
        _warn_of(parts.scheme)
        return None


@lru_cache(maxsize=8)
def _warn_of(scheme: str) -> None:
    """Log once that a variable is not used. Its value may have a password."""
    log.warning("the proxy of the environment for %s:// is not an http:// URL: connections are direct", scheme)


def _variable(environment: Mapping[str, str], name: str) -> str:
    return environment.get(name) or environment.get(name.upper()) or ""


def is_internal(host: str) -> bool:
    """Whether a host is certainly inside: a private or local address, or a name without a domain or of a cluster."""
    if (address := _address(host)) is not None:
        return not address.is_global
    return "." not in host.rstrip(".") or f".{host.rstrip('.').lower()}".endswith(_INTERNAL)


def _address(host: str) -> IPv4Address | IPv6Address | None:
    with suppress(ValueError):
        return ip_address(host)
    return None


def _is_exempt(host: str, port: int, listed: str) -> bool:
    """Whether `NO_PROXY` lists a host: `*`, a domain with all below it, an address, or a network. An entry may have a
    port, and a domain a star in front."""
    host, address = host.rstrip(".").lower(), _address(host)
    for entry in listed.replace(",", " ").lower().split():
        if entry == "*":
            return True
        name, colon, number = entry.rpartition(":")
        if colon and number.isdigit() and (":" not in name or name.endswith("]")):
            if int(number) != port:
                continue
            entry = name
        if address is not None:
            with suppress(ValueError):
                if address in ip_network(entry.strip("[]"), strict=False):
                    return True
        else:
            domain = entry.removeprefix("*").strip(".")
            if domain and (host == domain or host.endswith(f".{domain}")):
                return True
    return False
