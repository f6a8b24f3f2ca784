"""A target: the address, weight and zone of an endpoint from any source."""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
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
    account: EndpointConfig | None = None
    """The endpoint's own fields of the file, if it has an account of its own."""
    number: int = 1
    """Its number among the accounts without a name that have the same URL."""

    @property
    def place(self) -> str:
        """The URL, or the name of one of several accounts there: unique in its pool."""
        if self.account is not None and self.account.name is not None:
            return self.account.name
        return self.url if self.number == 1 else f"{self.url}#{self.number}"

    @classmethod
    def of(cls, written: EndpointConfig) -> "DiscoveredEndpoint":
        return cls(written.url, written.weight, written.zone, account=written if written.is_account else None)

    @classmethod
    def listed(cls, endpoints: Iterable[EndpointConfig]) -> Iterator["DiscoveredEndpoint"]:
        """The endpoints of the file. Accounts of one URL are numbered in the order of the file."""
        numbers = Counter[str]()
        for written in endpoints:
            if written.name is None:
                numbers[written.url] += 1
            yield replace(cls.of(written), number=max(1, numbers[written.url]))


Report = Callable[[Iterable[DiscoveredEndpoint]], None]
"""The callback of a source: receives all current endpoints."""


class EndpointSource(Protocol):
    """A source of endpoints."""

    async def follow(self, report: Report) -> None:
        """Report the current endpoints and, until cancelled, each change.

        Raises `DiscoveryError` when it cannot continue.
        """
        ...
