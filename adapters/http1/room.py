"""Slots for connections. If all slots are in use, idle connections yield theirs to new connections."""

import asyncio
import heapq
from typing import Generic, Protocol, TypeVar

SHARE = 16
"""A search closes up to 1/16 of the connections, so that a flood does not cost a search for each connection."""
REST = 5e-6
"""Pause after a search without a result: this number of seconds for each connection."""


class Guest(Protocol):
    """A connection, as the room uses it."""

    deadline: float

    @property
    def spare(self) -> bool:
        """Whether the connection has no request in progress and nothing to send."""

    def give_way(self) -> None:
        """Close at once."""


G = TypeVar("G", bound=Guest)


class Room(Generic[G]):
    """The connections of a server, limited to `most`."""

    __slots__ = ("_guests", "_loop", "_most", "_search_again")

    def __init__(self, loop: asyncio.AbstractEventLoop, guests: set[G], most: int) -> None:
        self._loop = loop
        self._guests = guests
        self._most = most
        self._search_again = 0.0

    def admits(self, newcomer: G) -> bool:
        """Whether a new connection, already among the guests, has a slot. Closes idle connections if necessary."""
        return len(self._guests) <= self._most or self._make(newcomer)

    def _make(self, newcomer: G) -> bool:
        now = self._loop.time()
        if now < self._search_again:
            return False
        spare = (guest for guest in self._guests if guest is not newcomer and guest.spare)
        # A connection after a request has a later deadline than a connection that was never used.
        leaving = heapq.nsmallest(1 + self._most // SHARE, spare, key=lambda guest: guest.deadline)
        for guest in leaving:
            self._guests.discard(guest)
            guest.give_way()
        if not leaving:
            self._search_again = now + REST * len(self._guests)
        return len(self._guests) <= self._most
