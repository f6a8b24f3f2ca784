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

    It exists only after the first byte of the upstream's body has arrived. A failure before that is raised by
    `Upstream.call` and may be retried; a failure after that is raised by `__anext__` and may not.

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
        """The wire format: a front of another wire transcodes the answer."""
        self.usage = usage or Usage()
        self.endpoint = ""
        self.pool = ""
        self.headers: tuple[tuple[str, str], ...] = ()
        """Headers for the client beside those of every answer."""
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
        """Cancel the upstream. It may be called at any time, more than once."""
        self.end(ClientGone("the client closed the connection"))


class Upstream(Protocol):
    """Anything that answers."""

    async def call(self, request: ModelRequest, call: Call) -> Answer:
        """Return the answer when it begins. Raises `InferenceError` for a failure before that."""
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
    """The typed error of an end, or None for a defect of the gateway."""
    if isinstance(error, InferenceError):
        return error
    if isinstance(error, asyncio.CancelledError):
        return ClientGone("the client closed the connection")
    return None
