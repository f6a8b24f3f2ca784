"""Accepts connections from a socket that another process bound, and may hand them over to other processes."""

import asyncio
import socket
from collections.abc import Callable
from typing import Protocol

EXHAUSTED = 0.1
"""Seconds after which a process without a free file descriptor tries again."""
MOST = 16
"""Connections accepted in one turn of the loop."""


class Siblings(Protocol):
    """The processes that serve the same clients."""

    def give(self, accepted: socket.socket) -> bool:
        """Hand a connection over to another process if that one has fewer. False if this process must serve it."""

    def arrived(self) -> None:
        """Count a new connection of this process."""

    def hold(self, connections: int) -> None:
        """This process has that number of open connections."""

    def leave(self) -> None:
        """This process accepts no more."""


class SharedSocket:
    """Accepts from a socket until `close`. Other processes may accept from it at any time."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, bound: socket.socket, siblings: Siblings | None,
        adopt: Callable[[socket.socket], None],
    ) -> None:  # fmt: skip
        self._loop = loop
        self._bound = bound.dup()
        self._bound.setblocking(False)
        self._siblings = siblings
        self._adopt = adopt
        self._pause: asyncio.TimerHandle | None = None
        self._resume()

    def _resume(self) -> None:
        self._pause = None
        self._loop.add_reader(self._bound, self._accept)

    def _accept(self) -> None:
        for _ in range(MOST):
            try:
                accepted, _ = self._bound.accept()
            except (BlockingIOError, InterruptedError):
                return
            except ConnectionError:  # the client has gone
                continue
            except OSError:
                self._loop.remove_reader(self._bound)
                self._pause = self._loop.call_later(EXHAUSTED, self._resume)
                return
            if self._siblings is None or not self._siblings.give(accepted):
                self._adopt(accepted)

    def close(self) -> socket.socket:
        """Accept no more. Returns the socket, which the caller closes."""
        if self._pause is None:
            self._loop.remove_reader(self._bound)
        else:
            self._pause.cancel()
        return self._bound
