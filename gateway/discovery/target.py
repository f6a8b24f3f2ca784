"""A target: the address, weight and zone of an endpoint from any source."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

from config.schema.config import EndpointConfig

MAX_TARGETS = 1000
"""In a pool. Each has a task, connections and a health check of its own."""


class DiscoveryError(Exception):
    """Why a source told nothing: one sentence for ops."""


@dataclass(frozen=True, slots=True)
class DiscoveredEndpoint:
    """An address and what is known about it."""

    url: str
    weight: float = 1.0
    zone: str | None = None
    server_name: str | None = None
    """Whom its certificate must be for, where the URL has an address and not a name."""

    @classmethod
    def of(cls, written: EndpointConfig) -> "DiscoveredEndpoint":
        return cls(written.url, written.weight, written.zone)


Report = Callable[[Iterable[DiscoveredEndpoint]], None]
"""What a source calls with all endpoints that there are now, none left out."""


class EndpointSource(Protocol):
    """Somewhere that endpoints are listed."""

    async def follow(self, report: Report) -> None:
        """Report what is there and, until cancelled, each change. Raises `DiscoveryError` when it cannot go on."""
        ...
