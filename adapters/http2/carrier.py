"""The connection as its streams see it: each half of a stream knows this interface and no connection."""

import asyncio
from typing import Any, Protocol

from adapters.http2.sending import Outlet


class Carrier(Protocol):
    """Carries streams: the bounds of each, and the bytes that all of them hold."""

    loop: asyncio.AbstractEventLoop
    outlet: Outlet
    held: int
    max_message: int
    max_held: int
    send_timeout: float

    def hold(self, size: int) -> None:
        """Count bytes of a message that nobody has read yet."""

    def release(self, size: int) -> None:
        """Count them no more."""

    def forgive(self, count: int) -> None:
        """Allow the peer so many more frames that carry no call."""

    def look_at(self, when: float) -> None:
        """Check the deadlines of all streams at `when`, or before."""

    def forget(self, stream: Any, /) -> None:
        """Drop a stream that has closed."""
