"""Public addresses: those that a server of the Internet may have."""

import ipaddress
import unicodedata

_NAT64 = ipaddress.ip_network("64:ff9b::/96")
_DOTS = str.maketrans("。", ".")


def is_public(address: str) -> bool:
    """Whether an IP address belongs to the Internet, also one of IPv4 inside of one of IPv6: mapped, 6to4 or NAT64.

    `address` is the address of a connection, so that no other notation of a host counts. Raises `ValueError`.
    """
    parsed = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(parsed, ipaddress.IPv6Address):
        inner = ipaddress.IPv4Address(int(parsed) & 0xFFFFFFFF) if parsed in _NAT64 else None
        embedded = inner or parsed.ipv4_mapped or parsed.sixtofour
        if embedded is not None:
            return is_public(str(embedded))
        if parsed.is_site_local:
            return False
    return parsed.is_global and not parsed.is_multicast and not parsed.is_reserved


def may_be_public(host: str) -> bool:
    """Whether the host of a URL may have a public address: any name, except those of this host.

    Clients convert digits and dots of other scripts to those of ASCII (IDNA), so the address does too.
    """
    name = unicodedata.normalize("NFKC", host).translate(_DOTS).rstrip(".")
    try:
        return is_public(name)
    except ValueError:
        return name != "localhost" and not name.endswith(".localhost")
