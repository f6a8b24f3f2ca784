"""Places for connections. Where all are taken, idle connections give up theirs to new ones."""

import asyncio
import heapq
from typing import Generic, Protocol, TypeVar

SHARE = 16
"""One in so many connections is closed at once, so that a flood does not cost a search for each connection."""
REST = 5e-6
"""Seconds for each connection without a search, after one that has found no idle connection."""


class Guest(Protocol):
    """A connection of a client."""

    deadline: float

    @property
    def spare(self) -> bool:
        """Whether it has no request under way and nothing to send."""

    def give_way(self) -> None:
        """Close at once."""


G = TypeVar("G", bound=Guest)


class Room(Generic[G]):
    """The connections of a server, of which there are at most `most`."""

    __slots__ = ("_guests", "_loop", "_most", "_search_again")

    def __init__(self, loop: asyncio.AbstractEventLoop, guests: set[G], most: int) -> None:
        self._loop = loop
        self._guests = guests
        self._most = most
        self._search_again = 0.0

    def admits(self, newcomer: G) -> bool:
        """Whether a connection, which is among the guests already, has a place. Closes idle ones where it needs to."""
        return len(self._guests) <= self._most or self._make(newcomer)

    def _make(self, newcomer: G) -> bool:
        now = self._loop.time()
        if now < self._search_again:
            return False
        spare = (guest for guest in self._guests if guest is not newcomer and guest.spare)
        # A connection that has been served has a later deadline than one that was never used.
        leaving = heapq.nsmallest(1 + self._most // SHARE, spare, key=lambda guest: guest.deadline)
        for guest in leaving:
            self._guests.discard(guest)
            guest.give_way()
        if not leaving:
            self._search_again = now + REST * len(self._guests)
        return len(self._guests) <= self._most
