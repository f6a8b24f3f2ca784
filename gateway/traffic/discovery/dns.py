"""Endpoints from DNS: the addresses of a host, or the targets of a service (RFC 2782)."""

import asyncio
import re
from typing import TYPE_CHECKING, Literal, NamedTuple

from config.installing import installing
from config.schema.config import DiscoverConfig
from gateway.traffic.discovery.target import MAX_TARGETS, DiscoveredEndpoint, DiscoveryError, Report, url

if TYPE_CHECKING:
    from dns.asyncresolver import Resolver
    from dns.resolver import Answer

RecordType = Literal["A", "AAAA", "SRV"]
LOOKUP_SECONDS = 5.0
NOTHING_SECONDS = 5.0
"""Seconds until a name without records is queried again: its TTL states how long others may cache the absence."""


class Lookup:
    """One resolver, which returns whole sets of records with the time of their validity."""

    def __init__(self, config: DiscoverConfig) -> None:
        self._resolver = _resolver(config.nameserver)
        self._cached: dict[tuple[str, str], list[str]] = {}

    async def query(self, name: str, kind: RecordType) -> "Answer | None":
        """The records; None without records or without such a name. Raises `DiscoveryError` when no server answered."""
        from dns.exception import DNSException
        from dns.resolver import NXDOMAIN, LifetimeTimeout, NoAnswer

        try:
            return await self._resolver.resolve(name, kind, lifetime=LOOKUP_SECONDS, search=True)
        except (NXDOMAIN, NoAnswer):
            return None
        except LifetimeTimeout:  # the resolver's own message differs each time, and would be logged each time
            raise DiscoveryError(f"{name} {kind} is not answered within {LOOKUP_SECONDS:g} s") from None
        except (DNSException, OSError, ValueError) as error:
            raise DiscoveryError(f"{name} {kind} cannot be looked up: {error}") from None

    async def addresses(self, host: str) -> "ResolvedHost":
        """Addresses of both families. If the query of one family fails, its last addresses stay."""
        v4, v6 = await asyncio.gather(self.query(host, "A"), self.query(host, "AAAA"), return_exceptions=True)
        resolved = ResolvedHost([], float("inf"))
        for kind, answer in (("A", v4), ("AAAA", v6)):
            if isinstance(answer, DiscoveryError):
                resolved.addresses.extend(self._cached.get((host, kind), ()))
                resolved = resolved._replace(ttl=0.0)
            elif isinstance(answer, BaseException):
                raise answer
            elif answer is None:
                self._cached.pop((host, kind), None)
            else:
                addresses = self._cached[host, kind] = [record.address for record in answer]
                resolved.addresses.extend(addresses)
                resolved = resolved._replace(ttl=min(resolved.ttl, answer.chaining_result.minimum_ttl))
        failures = [answer for answer in (v4, v6) if isinstance(answer, DiscoveryError)]
        if len(failures) == 2 or (failures and not resolved.addresses):
            raise failures[0]
        if len(self._cached) > 4 * MAX_TARGETS:
            self._cached.clear()  # targets that come and go for weeks; a family's failure is rare
        return resolved


class ResolvedHost(NamedTuple):
    """The addresses of one host, and the seconds of their validity; infinite without addresses."""

    addresses: list[str]
    ttl: float


class Addresses:
    """``dns``: every address of a host, at one port."""

    def __init__(self, config: DiscoverConfig) -> None:
        assert config.dns is not None
        self._config = config
        self._lookup = Lookup(config)
        self._host, _, port = config.dns.rpartition(":")
        self._port = int(port)

    async def follow(self, report: Report) -> None:
        scheme, name = self._config.scheme, self._host.rstrip(".")
        while True:
            resolved = await self._lookup.addresses(self._host)
            report(DiscoveredEndpoint(url(scheme, ip, self._port), server_name=name) for ip in resolved.addresses)
            await asyncio.sleep(held(resolved.ttl, self._config))


class ServiceRecords:
    """``srv``: of the targets with the first priority, every address, with the target's port and weight."""

    def __init__(self, config: DiscoverConfig) -> None:
        assert config.srv is not None
        self._config = config
        self._lookup = Lookup(config)
        self._name = config.srv

    async def follow(self, report: Report) -> None:
        while True:
            answer = await self._lookup.query(self._name, "SRV")
            if answer is None:
                report(())
                await asyncio.sleep(held(float("inf"), self._config))
                continue
            first = min(record.priority for record in answer)
            records = [record for record in answer if record.priority == first and str(record.target) != "."]
            hosts = [record.target.to_text() for record in records]
            resolved = await asyncio.gather(*map(self._lookup.addresses, hosts))
            weights = [record.weight for record in records]
            report(
                DiscoveredEndpoint(
                    url(self._config.scheme, ip, record.port), weight / len(at.addresses), None, host.rstrip(".")
                )
                for record, host, at, weight in zip(records, hosts, resolved, relative(weights), strict=True)
                for ip in at.addresses
            )
            ttl = min([answer.chaining_result.minimum_ttl, *(at.ttl for at in resolved)])
            await asyncio.sleep(held(ttl, self._config))


def relative(weights: list[int]) -> list[float]:
    """Convert SRV weights, 0 … 65535, to weights that average 1.

    A weight of 0 is a very small share, unless all have it.
    """
    mean = sum(weights) / len(weights) if weights else 0
    return [max(weight / mean, 0.01) if mean else 1.0 for weight in weights]


def held(ttl: float, config: DiscoverConfig) -> float:
    """Seconds until the next lookup."""
    if ttl == float("inf"):
        return max(config.ttl_min, min(NOTHING_SECONDS, config.ttl_max))
    return max(config.ttl_min, min(ttl, config.ttl_max))


def _resolver(nameserver: str | None) -> "Resolver":
    try:
        from dns.asyncresolver import Resolver
        from dns.exception import DNSException
    except ImportError:
        raise DiscoveryError(f"dns and srv need an extra: {installing('discovery')}") from None
    if nameserver is None:
        try:
            return Resolver()
        except DNSException as error:
            raise DiscoveryError(f"the system's resolver cannot be used: {error}") from None
    written = re.fullmatch(r"(?:\[(.+)\]|([0-9.]+))(?::(\d+))?", nameserver)
    assert written is not None  # in the form of the configuration
    resolver = Resolver(configure=False)
    resolver.port = int(written[3] or 53)
    try:
        resolver.nameservers = [written[1] or written[2]]
    except ValueError:
        raise DiscoveryError(f"{nameserver} is not a nameserver's address") from None
    return resolver
