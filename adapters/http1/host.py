"""The server as its connections see it, and its connections as the server sees them."""

import asyncio
from typing import Protocol

from adapters.http1.budget import Budget
from adapters.http1.limits import Limits
from adapters.http1.message import Handler, Refusal


class Member(Protocol):
    """An accepted connection of a server, whichever version of HTTP it speaks."""

    deadline: float

    @property
    def spare(self) -> bool:
        """Whether it has no request under way and nothing to send."""

    def expire(self) -> None:
        """The deadline has passed."""

    def hurry(self, seconds: float) -> None:
        """Close after the requests under way, and at most `seconds` later if there is none."""

    def give_way(self) -> None:
        """Close at once, to make room for another connection."""

    def abort(self) -> asyncio.Task[None] | None:
        """Drop the connection now; returns its task, which is being cancelled."""


class Host(Protocol):
    """A server."""

    loop: asyncio.AbstractEventLoop
    handler: Handler
    limits: Limits
    budget: Budget
    refusal: Refusal
    draining: bool

    def opened(self, connection: Member) -> bool:
        """Count a connection; False if there are too many, and none of them is idle."""

    def closed(self, connection: Member, task: asyncio.Task[None] | None) -> None:
        """Count it no more; `task` is still cleaning up."""

    def date(self) -> bytes:
        """The value of the Date field."""
