"""The interface between a server and its connections, in both directions."""

import asyncio
from typing import Protocol

from adapters.http1.budget import Budget
from adapters.http1.limits import Limits
from adapters.http1.message import Handler, Refusal


class ServedConnection(Protocol):
    """An accepted connection of a server, over HTTP/1.1 or HTTP/2."""

    deadline: float

    @property
    def spare(self) -> bool:
        """Whether the connection has no request in progress and nothing to send."""

    def expire(self) -> None:
        """Handle the end of the deadline."""

    def hurry(self, lull: float, patience: float) -> None:
        """Close after the requests in progress; without a request, after at most `lull` seconds.

        A protocol that its client has to open first may wait for `patience` seconds until it does.
        """

    def give_way(self) -> None:
        """Close at once, to make room for another connection."""

    def abort(self) -> asyncio.Task[None] | None:
        """Drop the connection now. Returns its task, which is being cancelled."""


class Host(Protocol):
    """A server, as its connections use it."""

    loop: asyncio.AbstractEventLoop
    handler: Handler
    limits: Limits
    budget: Budget
    refusal: Refusal
    draining: bool

    def opened(self, connection: ServedConnection) -> bool:
        """Count a connection. False if the server is full and no connection is idle."""

    def closed(self, connection: ServedConnection, task: asyncio.Task[None] | None) -> None:
        """Remove a connection from the count; `task` is still cleaning up."""

    def date(self) -> bytes:
        """The value of the Date field."""
