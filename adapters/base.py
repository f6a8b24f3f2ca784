"""The one interface: everything that composes is an `Upstream`.

An adapter, a pool of adapters, a retry around a pool and a chain of fallbacks all answer the same call, so
policies nest without special cases and a test puts `adapters.fake` at the bottom.
"""

import asyncio
from collections.abc import Callable
from typing import Protocol

from adapters.call import Call
from adapters.errors import ClientGone, InferenceError
from adapters.types import OPENAI, Form, ModelRequest, Usage

Ended = Callable[["Answer", BaseException | None], None]


class Answer:
    """An answer that has begun: a whole body, or a first chunk and the rest.

    It exists only once the upstream's first byte of body is here, so whatever fails before is raised by
    `Upstream.call` and may be tried elsewhere; whatever fails after is raised by `__anext__` and may not.

    Every answer ends exactly once: whole, failed or cancelled. `when_ended` callbacks run then, in the
    order in which they were added; one added after the end runs at once.
    """

    __slots__ = (
        "_callbacks",
        "body",
        "content_type",
        "endpoint",
        "ended",
        "error",
        "form",
        "headers",
        "pool",
        "status",
        "usage",
    )

    def __init__(
        self,
        *,
        content_type: str,
        body: bytes | None,
        usage: Usage | None = None,
        status: int = 200,
        form: Form = OPENAI,
    ) -> None:
        self.status = status
        self.content_type = content_type
        self.body = body
        """All of it, or None for a stream, which is then iterated."""
        self.form = form
        """What it is written in: a front of another wire writes it anew."""
        self.usage = usage or Usage()
        self.endpoint = ""
        self.pool = ""
        self.headers: tuple[tuple[str, str], ...] = ()
        """What the client is told of it beside what every answer has."""
        self.ended = False
        self.error: BaseException | None = None
        self._callbacks: list[Ended] = []
        if body is not None:
            self.end(None)

    def when_ended(self, callback: Ended) -> None:
        """Run `callback(answer, error)` at the end; `error` is None for a whole answer."""
        if self.ended:
            callback(self, self.error)
        else:
            self._callbacks.append(callback)

    def end(self, error: BaseException | None) -> None:
        """Mark the one end. Later calls change nothing."""
        if self.ended:
            return
        self.ended = True
        # The error of a cancellation has the frames that it passes, and these have this answer: a reference cycle that
        # would hold the buffers of the stream until a full garbage collection.
        self.error = error = asyncio.CancelledError() if isinstance(error, asyncio.CancelledError) else error
        callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback(self, error)

    def __aiter__(self) -> "Answer":
        return self

    async def __anext__(self) -> bytes:
        """The next complete piece of the wire (for SSE: whole events). A subclass that streams overrides it."""
        raise StopAsyncIteration

    async def aclose(self) -> None:
        """Stop wanting the rest: the upstream is cancelled. Safe to call at any time, more than once."""
        self.end(ClientGone("the client closed the connection"))


class Upstream(Protocol):
    """Anything that answers."""

    async def call(self, request: ModelRequest, call: Call) -> Answer:
        """Raise `InferenceError` while nothing was answered, else return the begun answer."""
        ...


class Adapter(Upstream, Protocol):
    """An upstream that speaks one protocol to one endpoint."""

    async def probe(self, timeout: float) -> None:
        """Return when the endpoint is ready; raise `InferenceError` when it is not."""
        ...

    async def aclose(self) -> None:
        """Close its connections."""
        ...


def as_inference_error(error: BaseException | None) -> InferenceError | None:
    """The typed form of what ended a call, or None for a bug of ours."""
    if isinstance(error, InferenceError):
        return error
    if isinstance(error, asyncio.CancelledError):
        return ClientGone("the client closed the connection")
    return None
