"""A target: the address, weight and zone of an endpoint from any source."""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

from config.schema.config import EndpointConfig

MAX_TARGETS = 1000
"""The most endpoints of a pool. Each has a task, connections and a health check."""

_HOST = re.compile(r"[A-Za-z0-9_.:%-]{1,253}")


class DiscoveryError(Exception):
    """A source's query failed. The message is one sentence for operators. `retry_after`: the seconds for which the
    source refuses further queries."""

    def __init__(self, message: str, retry_after: float = 0.0) -> None:
        super().__init__(message)
        self.retry_after = retry_after


def url(scheme: str, address: str, port: int) -> str:
    """The URL of an endpoint; empty if `address` is no host, which the discoverer reports. IPv6 is in brackets."""
    if not _HOST.fullmatch(address):
        return ""
    return f"{scheme}://[{address}]:{port}" if ":" in address else f"{scheme}://{address}:{port}"


@dataclass(frozen=True, slots=True)
class DiscoveredEndpoint:
    """An address and its attributes."""

    url: str
    weight: float = 1.0
    zone: str | None = None
    server_name: str | None = None
    """The name that its certificate must have, if the URL has an address instead of a name."""

    @classmethod
    def of(cls, written: EndpointConfig) -> "DiscoveredEndpoint":
        return cls(written.url, written.weight, written.zone)


Report = Callable[[Iterable[DiscoveredEndpoint]], None]
"""The callback of a source: receives all current endpoints."""


class EndpointSource(Protocol):
    """A source of endpoints."""

    async def follow(self, report: Report) -> None:
        """Report the current endpoints and, until cancelled, each change.

        Raises `DiscoveryError` when it cannot continue.
        """
        ...
