"""A few places for work, shared by tenants: each has one place at a time, so that none holds up another."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from adapters.errors import CapacityError

_FULL = "Too many grammars are being compiled: try again later."


class Turns:
    """`places` in all, one for each tenant. Up to `most` wait, and up to `most_of_one` of a tenant's."""

    def __init__(self, places: int, *, most: int, most_of_one: int) -> None:
        self._places = asyncio.Semaphore(places)
        self._own: dict[str, asyncio.Lock] = {}
        self._waiting: Counter[str] = Counter()
        self._most = most
        self._most_of_one = most_of_one

    @asynccontextmanager
    async def turn(self, tenant: str, seconds: float) -> AsyncIterator[None]:
        """A place for the time within. Raises CapacityError if too many wait, or if none is free in `seconds`."""
        if self._waiting.total() >= self._most or self._waiting[tenant] >= self._most_of_one:
            raise CapacityError(_FULL)
        self._waiting[tenant] += 1
        own = self._own.setdefault(tenant, asyncio.Lock())
        try:
            try:
                async with asyncio.timeout(seconds):
                    await own.acquire()
                    try:
                        await self._places.acquire()
                    except BaseException:
                        own.release()
                        raise
            except TimeoutError:
                raise CapacityError("Other grammars take long to compile: try again later.") from None
            try:
                yield
            finally:
                self._places.release()
                own.release()
        finally:
            self._waiting[tenant] -= 1
            if not self._waiting[tenant]:
                del self._waiting[tenant], self._own[tenant]
