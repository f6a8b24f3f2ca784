"""The spans of a runtime's requests, for a gateway that traces them.

A request with a `traceparent` has a span, and each of its phases a span below it. They stay in memory until the
gateway posts the ids of the attempts that it exports (`adapters.wire.spans`); later ones displace them. A request
without a `traceparent` costs one look-up of a header.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar

from adapters.errors import CallerError, InferenceError
from adapters.spans import Attribute, Span, SpanLog, read_baggage, read_context
from adapters.wire import spans as wire

MOST_REQUESTS = 4096
"""Ended requests whose spans are in memory: some megabytes, and several seconds of a busy server."""
MOST_OF_ONE = 16
"""Requests below one span of the gateway."""
MOST_BAGGAGE = 16
"""Members of the `baggage` header that become attributes."""

around: ContextVar[Span | None] = ContextVar("around", default=None)
"""The span in which the current request or step runs; None if it is not traced."""


@contextmanager
def within(span: Span) -> Iterator[None]:
    """Mark the tasks that begin here as parts of `span`."""
    token = around.set(span)
    try:
        yield
    finally:
        around.reset(token)


class SpanBuffer:
    """The spans of the latest requests. All methods belong to the event loop."""

    def __init__(self, clock: Callable[[], float], most: int = MOST_REQUESTS) -> None:
        self._clock = clock
        self._most = most
        self._ended: dict[bytes, list[SpanLog]] = {}
        self._size = 0

    def begin(self, headers: Mapping[str, str], name: str) -> Span | None:
        """The span of a request; None if its headers do not continue a trace."""
        parent = headers.get("traceparent")
        context = None if parent is None else read_context(parent, headers.get("tracestate"))
        if context is None:
            return None
        root = SpanLog(context, self._clock(), self._clock).root
        root.name = name
        root.attributes.update(_baggage_attributes(read_baggage(headers.get("baggage"))))
        return root

    def end(self, root: Span, error: BaseException | str) -> None:
        """End the span of a request; `error` is empty for a success. Only the first call counts."""
        if root.end:
            return
        root.finish(self._clock(), error if isinstance(error, str) else kind_of(error))
        logs = self._ended.setdefault(root.parent, [])
        if len(logs) < MOST_OF_ONE:
            logs.append(root.log)
            self._size += 1
        while self._size > self._most:
            self._size -= len(self._ended.pop(next(iter(self._ended))))

    def take(self, ids: bytes) -> bytes:
        """The spans below the attempts with these ids, removed from memory. Raises `CallerError`."""
        size = wire.ID_BYTES
        if len(ids) % size or len(ids) > size * wire.MOST_IDS:
            raise CallerError(f"The body must be ids of spans, {size} bytes each, {wire.MOST_IDS} at most.")
        logs: list[SpanLog] = []
        for at in range(0, len(ids), size):
            logs += self._ended.pop(ids[at : at + size], ())
        self._size -= len(logs)
        return wire.encode(logs, time.time() - self._clock())


def kind_of(error: BaseException) -> str:
    """The word for the class of an error."""
    return error.kind if isinstance(error, InferenceError) else "cancelled"


def phase(parent: Span, name: str, start: float, end: float, attributes: dict[str, Attribute]) -> None:
    """Record a phase of a request that has ended."""
    span = parent.log.begin(name, "internal", parent, start)
    span.attributes = attributes
    span.finish(end)


def _baggage_attributes(baggage: str) -> dict[str, Attribute]:
    """The members of a `baggage` header, without their properties."""
    attributes: dict[str, Attribute] = {}
    for member in baggage.split(",")[:MOST_BAGGAGE] if baggage else ():
        name, separator, value = member.partition(";")[0].partition("=")
        if separator and name.strip():
            attributes[f"baggage.{name.strip()[:64]}"] = value.strip()[:256]
    return attributes
