"""Sends comments in an event stream whose first event is late, so that no proxy closes an idle connection.

The status 200 is sent with the first comment, so a later failure is an event.
"""

import asyncio
from collections.abc import Awaitable, Callable

from adapters.cut import survived
from adapters.http1.message import BodyStream, Response

COMMENT = b": waiting\n\n"
"""A comment: a line that begins with a colon (HTML, 9.2.6)."""
EventOf = Callable[[bytes], bytes]
"""Encodes the body of an error as an event of the front's streams."""


async def commented(
    answering: Awaitable[Response],
    patience: float,
    fields: Callable[[], list[tuple[str, str]] | None],
    event_of: EventOf,
) -> Response:
    """Return the response if it arrives within `patience` seconds, else a stream of comments followed by its body.

    `fields` returns the headers of that stream; None if the response is not a stream.
    """
    task = asyncio.ensure_future(answering)
    try:
        await asyncio.wait([task], timeout=patience)
        if task.done() or (headers := fields()) is None:
            return await task
    except asyncio.CancelledError:
        task.cancel()
        await asyncio.wait([task])
        if not task.cancelled() and survived() is not None:
            return task.result()
        await _close(task)
        raise
    except BaseException:
        await _cancel(task)
        raise
    return Response(200, headers, _Commented(task, patience, event_of))


class _Commented:
    """The body of a response that has not arrived yet."""

    __slots__ = ("_body", "_event_of", "_patience", "_started", "_task", "_whole")

    def __init__(self, task: "asyncio.Future[Response]", patience: float, event_of: EventOf) -> None:
        self._task = task
        self._patience = patience
        self._event_of = event_of
        self._started = False
        self._body: BodyStream | None = None
        self._whole = False

    def __aiter__(self) -> "_Commented":
        return self

    async def __anext__(self) -> bytes:
        if not self._started:
            self._started = True
            return COMMENT
        if self._whole:
            raise StopAsyncIteration
        if self._body is None:
            try:
                await asyncio.wait([self._task], timeout=self._patience)
            except asyncio.CancelledError:
                if survived() is None:
                    raise
                self._task.cancel()  # it returns the error of its door
                await asyncio.wait([self._task])
            if not self._task.done():
                return COMMENT
            response = self._task.result()
            if isinstance(response.body, bytes):
                self._whole = True
                return response.body if response.status == 200 else self._event_of(response.body)
            self._body = response.body
        return await self._body.__anext__()

    async def aclose(self) -> None:
        if self._body is None and not self._task.done():
            await _cancel(self._task)
        elif self._body is None and not self._task.cancelled() and self._task.exception() is None:
            body = self._task.result().body
            self._body = None if isinstance(body, bytes) else body
        if self._body is not None:
            await self._body.aclose()


async def _cancel(task: "asyncio.Future[Response]") -> None:
    """Cancel the task, wait for its end, and close the response that it returned."""
    task.cancel()
    await asyncio.wait([task])
    await _close(task)


async def _close(task: "asyncio.Future[Response]") -> None:
    """Close the response that a task has returned."""
    if not task.cancelled() and task.exception() is None and not isinstance(body := task.result().body, bytes):
        await body.aclose()
