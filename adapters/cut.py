"""The end of a server's drain: the requests that still run are cut, and each answers with an error of its door."""

from __future__ import annotations

import asyncio
from contextvars import ContextVar

from adapters.errors import ClientGone, Drained, InferenceError


class Cut:
    """Whether a server has cut its requests. The tasks of a request inherit that of their server."""

    __slots__ = ("begun",)

    def __init__(self) -> None:
        self.begun = False


_NEVER = Cut()
SERVER: ContextVar[Cut] = ContextVar("server", default=_NEVER)
"""The cut of the server that answers the request of this task."""


def cancellation() -> InferenceError:
    """The error of a cancelled request: its server has cut it, or its client has left."""
    if SERVER.get().begun:
        return Drained("The gateway is shutting down, and the answer is not complete. Try again.", retry_after=1.0)
    return ClientGone("the client closed the connection")


def survived() -> Drained | None:
    """In a handler of `CancelledError`: the error with which a request that its server has cut goes on to its end.

    None for any other cancellation, which the handler raises again.
    """
    error = cancellation()
    if not isinstance(error, Drained):
        return None
    if (task := asyncio.current_task()) is not None:
        task.uncancel()
    return error
