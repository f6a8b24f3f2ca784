"""Channels that end with their test."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from adapters.http2.channel import Channel
from adapters.types import Deadline
from tests.adapters.http1.raw import until

PATIENCE = 300.0


def soon(channel: Channel) -> Deadline:
    """All the time that a test has."""
    return Deadline(channel.now() + PATIENCE, PATIENCE, PATIENCE)


@asynccontextmanager
async def calling(url: str, **options: Any) -> AsyncIterator[Channel]:
    """A channel that has closed all its connections and released all that they held by the end."""
    channel = Channel(url, **options)
    try:
        yield channel
    finally:
        for connection in channel._open:
            assert (connection.held, connection.outlet.unsent, dict(connection.streams)) == (0, 0, {})
        await channel.aclose()
        await until(lambda: not channel._open)
