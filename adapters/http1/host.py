"""The interface between a server and its connections, in both directions, and the limits of both."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from adapters.cut import Cut
from adapters.http1.budget import Budget
from adapters.http1.message import Handler, Refusal

# Limits of a server and of each accepted connection.

KiB = 1024
MiB = 1024 * KiB
GiB = 1024 * MiB


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of a server and of each connection: sizes in bytes, times in seconds.

    A head must be complete within `head_timeout`. A body has `body_timeout` plus the time that its bytes take at
    `min_body_rate`: a slow drip of bytes ends soon, a large upload does not. `max_held` limits the memory of all bodies
    together, unless the server has a shared budget. `http2` also serves HTTP/2 and needs the package `h2`.
    """

    max_head: int = 32 * KiB
    max_headers: int = 100
    max_body: int = 32 * MiB
    max_held: int = 2 * GiB
    max_pipelined: int = 16
    max_connections: int = 10_000
    head_timeout: float = 10.0
    body_timeout: float = 30.0
    min_body_rate: int = 8 * KiB
    keepalive_timeout: float = 75.0
    send_timeout: float = 60.0
    http2: bool = False
    uploads: Mapping[bytes, int] = field(default_factory=dict)
    """The largest body by path, for paths whose handler reads the body in pieces; `max_body` for all others."""


class ServedConnection(Protocol):
    """An accepted connection of a server, over HTTP/1.1 or HTTP/2."""

    deadline: float

    @property
    def spare(self) -> bool:
        """Whether the connection has no request in progress and nothing to send."""

    @property
    def rests(self) -> bool:
        """Whether no request is under way."""
        ...

    def expire(self) -> None:
        """Handle the end of the deadline."""

    def hurry(self, lull: float, patience: float) -> None:
        """Close after the requests in progress; without a request, after at most `lull` seconds.

        A protocol that its client has to open first may wait for `patience` seconds until it does.
        """

    def give_way(self) -> None:
        """Close at once, to make room for another connection."""

    def end_requests(self) -> set[asyncio.Task[None]]:
        """Cut the requests in progress: their handlers are cancelled, and write how the answer ends. Returns their
        tasks."""

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
    cut: Cut

    def opened(self, connection: ServedConnection) -> bool:
        """Count a connection. False if the server is full and no connection is idle."""

    def closed(self, connection: ServedConnection, task: asyncio.Task[None] | None) -> None:
        """Remove a connection from the count; `task` is still cleaning up."""

    def date(self) -> bytes:
        """The value of the Date field."""
