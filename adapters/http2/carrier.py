"""The interface of a connection to its streams: both halves of a stream depend on it, not on a connection."""

import asyncio
from typing import Any, Protocol

from adapters.http2.sending import Outlet


class Carrier(Protocol):
    """A connection, as its streams use it: the limits of each stream, and the bytes that all streams hold."""

    loop: asyncio.AbstractEventLoop
    outlet: Outlet
    held: int
    max_message: int
    max_held: int
    send_timeout: float

    def hold(self, size: int) -> None:
        """Count bytes of a message that has not been read yet."""

    def release(self, size: int) -> None:
        """Remove bytes from the count."""

    def forgive(self, count: int) -> None:
        """Allow the peer `count` more frames that belong to no call."""

    def look_at(self, when: float) -> None:
        """Check the deadlines of all streams at `when` or earlier."""

    def forget(self, stream: Any, /) -> None:
        """Remove a closed stream."""
