"""A followed source, and its reports."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from random import Random

from config.schema.config import DiscoverConfig
from gateway.traffic.discovery.discoverer import Discoverer
from gateway.traffic.discovery.target import DiscoveredEndpoint


class Scripted:
    """A source that the test controls."""

    def __init__(self) -> None:
        self.report: Callable[[Iterable[DiscoveredEndpoint]], None]
        self.follows = 0
        self.error: Exception | None = None
        self._failing = asyncio.Event()

    async def follow(self, report: Callable[[Iterable[DiscoveredEndpoint]], None]) -> None:
        self.report = report
        self.follows += 1
        self._failing.clear()
        if self.error is None:
            await self._failing.wait()
        assert self.error is not None
        raise self.error

    def fail(self, error: Exception) -> None:
        self.error = error
        self._failing.set()


@asynccontextmanager
async def following(config: DiscoverConfig) -> AsyncIterator[Discoverer]:
    discoverer = Discoverer("main", config, asyncio.get_running_loop().time, Random(1))
    discoverer.start()
    try:
        yield discoverer
    finally:
        discoverer.stop()


def urls(discoverer: Discoverer) -> list[str]:
    return [target.url for target in discoverer.targets]
