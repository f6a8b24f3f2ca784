"""The address of a client behind proxies, from `x-forwarded-for`."""

import ipaddress
from collections.abc import Sequence
from functools import lru_cache

from config.schema.units import IpNetwork

_Address = ipaddress.IPv4Address | ipaddress.IPv6Address


def client_address(peer: str, forwarded: str | None, trusted: Sequence[IpNetwork]) -> str:
    """The last address of the field that is not of a trusted proxy; `peer` if that is not one itself.

    Each proxy adds the address of its own client at the end. So everything before the first untrusted address, or
    before a text that is no address, may be invented by the client.
    """
    client = peer
    if forwarded is None or not _is_proxy(peer, tuple(trusted)):
        return client
    rest: str | None = forwarded
    while rest is not None:
        before, comma, last = rest.rpartition(",")
        address = _address(last)
        if address is None:
            return client
        client = str(address)
        if not _is_proxy(client, tuple(trusted)):
            return client
        rest = before if comma else None
    return client


@lru_cache(maxsize=1024)
def _is_proxy(text: str, trusted: tuple[IpNetwork, ...]) -> bool:
    address = _address(text)
    return address is not None and any(address in network for network in trusted)


def _address(text: str) -> _Address | None:
    """An address, also with a port as some balancers write it: `192.0.2.1:4711`, `[2001:db8::1]:4711`."""
    text = text.strip()
    if text.startswith("["):
        text = text[1:].partition("]")[0]
    elif text.count(":") == 1:
        text = text.partition(":")[0]
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return address if mapped is None else mapped
