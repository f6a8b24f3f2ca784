"""An exchange with an upstream that a proxy carries: no connection of this process leads to the upstream.

The proxy sends the request and reports the response, which is read like that of a connection: the same bounds, timeouts
and errors apply. `gateway/features/picker` has the only relay, Envoy.
"""

import asyncio
from collections.abc import Sequence
from contextlib import AbstractContextManager
from contextvars import ContextVar
from typing import Protocol

from adapters.errors import InferenceError
from adapters.http1.exchange import Exchange
from adapters.types import Deadline


class Relay(Protocol):
    """A proxy that carries one request to its endpoint. It sends a request once."""

    sent: bool
    """Whether the proxy has the request: no other attempt is possible."""
    served: str
    """The address of the endpoint that answered, as the proxy reports it; empty without a report."""
    alternatives: int
    """The most endpoints that the proxy receives besides the picked one."""

    def has_served(self, url: str) -> bool:
        """Whether the proxy reports that an endpoint has answered."""

    def admits(self, url: str) -> bool:
        """Whether the proxy can reach an endpoint, and may send this request to it."""

    def carrying(self, urls: Sequence[str]) -> AbstractContextManager[None]:
        """A context whose calls of adapters go through the proxy, to the first of these endpoints that it reaches."""
        ...

    async def exchange(
        self, method: bytes, target: bytes, fields: bytes, body: bytes, deadline: Deadline
    ) -> "RelayedExchange":
        """Send a request. Returns when the head of the response has arrived. Raises `InferenceError`."""
        ...


RELAY: ContextVar[Relay | None] = ContextVar("relay", default=None)
"""The relay of the adapters' calls in this context; None for connections of this process."""


class RelayedExchange(Exchange):
    """An exchange whose bytes come from a relay: `open`, then `data_received`, and `begun` for the head."""

    __slots__ = ()

    def __init__(self, loop: asyncio.AbstractEventLoop, transport: asyncio.Transport) -> None:
        super().__init__(loop, _closed)
        self.connection_made(transport)

    def open(self, deadline: Deadline) -> None:
        """Expect a response."""
        self._begin(deadline)

    async def begun(self) -> None:
        """Wait for the head of the response. Raises `InferenceError`."""
        self._expect_head()
        while (wait := self.head()) is not None:
            await wait

    def fail(self, error: InferenceError) -> None:
        """End the exchange: the proxy has no response."""
        self._fail(error)

    @property
    def reusable(self) -> bool:
        return False


def _closed(exchange: Exchange) -> None:
    """A relayed exchange is in no pool of connections."""
