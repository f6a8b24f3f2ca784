"""`Answer`, a response that has begun."""

import asyncio
from collections.abc import Callable
from typing import Protocol

from adapters.cut import cancellation
from adapters.requests import ModelRequest, R
from adapters.types import OPENAI, Form, Usage

EXCERPT = 64 * 1024
"""Bytes of the largest body that has excerpts."""
Ended = Callable[["Answer", BaseException | None], None]


class Answer:
    """A response that has begun: a whole body, or a first chunk and the rest.

    An answer exists only after the first byte of the upstream's body has arrived. `Upstream.call` raises an earlier
    failure, which may be retried; `__anext__` raises a later failure, which may not.

    Every answer ends exactly once: whole, failed or cancelled. The callbacks of `when_ended` then run in the order of
    their registration; a callback that is added after the end runs at once.
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
        "request",
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
        """The whole body, or None for a stream, which is iterated."""
        self.form = form
        """The wire format: a front door of another wire transcodes the answer."""
        self.usage = usage or Usage()
        self.endpoint = ""
        self.pool = ""
        self.request: ModelRequest | None = None
        """The request after it has been routed: renamed and rewritten. The gateway sets it."""
        self.headers: tuple[tuple[str, str], ...] = ()
        """Headers for the client in addition to those of every response."""
        self.ended = False
        self.error: BaseException | None = None
        self._callbacks: list[Ended] = []
        if body is not None:
            self.end(None)

    def routed(self, request: R) -> R:
        """Return the request after it has been routed, for the request of a front."""
        return self.request if isinstance(self.request, type(request)) else request

    @property
    def excerpts(self) -> tuple[bytes, ...]:
        """The parts that have the answer's id, its model and the reasons of its end: its body, or the first and the
        last events of a stream. Nothing of a large body."""
        return (self.body,) if self.body is not None and len(self.body) <= EXCERPT else ()

    def when_ended(self, callback: Ended) -> None:
        """Run `callback(answer, error)` at the end; `error` is None for a whole answer."""
        if self.ended:
            callback(self, self.error)
        else:
            self._callbacks.append(callback)

    def end(self, error: BaseException | None) -> None:
        """Mark the end of the answer. Later calls have no effect."""
        if self.ended:
            return
        self.ended = True
        # The error of a cancellation refers to the frames that it passes, and the frames to this answer: a reference
        # cycle that would hold the buffers of the stream until a full garbage collection.
        self.error = error = asyncio.CancelledError() if isinstance(error, asyncio.CancelledError) else error
        callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback(self, error)

    def __aiter__(self) -> "Answer":
        return self

    async def __anext__(self) -> bytes:
        """Return the next complete piece of the wire (for SSE: whole events). Subclasses for streams override it."""
        raise StopAsyncIteration

    def write_to(self, writer: Callable[[bytes], bool]) -> None:
        """Offer a stream the writer of its connection, for pieces that arrive while the connection waits.

        A stream that cannot use the writer ignores it, such as a stream whose pieces others receive too.
        """

    async def aclose(self) -> None:
        """Cancel the upstream. The method may be called at any time and more than once."""
        self.end(cancellation())


# A stream whose pieces another reader receives too, as the client reads them.


class PieceSink(Protocol):
    """Receives the pieces of an answer."""

    def add(self, piece: bytes) -> None:
        """Take a piece of the answer."""
        ...


class TappedAnswer(Answer):
    """A stream whose pieces a sink receives too. Reading, ending and cancelling it are those of the inner stream."""

    __slots__ = ("_inner", "_sink")

    def __init__(self, inner: Answer, sink: PieceSink) -> None:
        super().__init__(
            content_type=inner.content_type, body=None, usage=inner.usage, status=inner.status, form=inner.form
        )
        self.endpoint, self.pool, self.headers = inner.endpoint, inner.pool, inner.headers
        self._inner = inner
        self._sink = sink
        inner.when_ended(self._ended)

    def _ended(self, inner: Answer, error: BaseException | None) -> None:
        self.usage = inner.usage
        self.end(error)

    async def __anext__(self) -> bytes:
        piece = await self._inner.__anext__()
        self.usage = self._inner.usage
        self._sink.add(piece)
        return piece

    async def aclose(self) -> None:
        await self._inner.aclose()
