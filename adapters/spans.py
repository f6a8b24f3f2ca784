"""The spans of one traced request: the parts of a trace that a collector shows. An untraced request has none.

Contexts are those of W3C Trace Context (https://www.w3.org/TR/trace-context-1): 16 bytes of a trace, 8 of a span.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol

if TYPE_CHECKING:
    from adapters.requests import ModelRequest

Kind = Literal["internal", "server", "client"]
Attribute = str | bool | int | float | tuple[str, ...]
SpanEvent = tuple[float, str, dict[str, Attribute]]
"""Loop time, name and attributes."""

MOST_SPANS = 256
MOST_EVENTS = 64

_TRACEPARENT = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")
_TRACESTATE = re.compile(r"[ -~]{1,512}")
_BAGGAGE = re.compile(r"[!-~ \t]{1,4096}")
_source = Random()
"""Ids are unique, not secret."""
os.register_at_fork(after_in_child=_source.seed)
_random = _source.getrandbits
_LOW = (1 << 64) - 1


class TraceContext(NamedTuple):
    """A client's trace, and the span in it that sent the request."""

    trace_id: bytes
    span_id: bytes
    sampled: bool
    state: str
    """The `tracestate` header, forwarded as received; empty without one."""


def read_context(traceparent: str | None, tracestate: str | None) -> TraceContext | None:
    """The context of a client's headers; None without a valid one, which starts a new trace."""
    matched = None if traceparent is None else _TRACEPARENT.fullmatch(traceparent.strip(" \t"))
    if matched is None:
        return None
    version, trace, span, flags, more = matched.groups()
    if version == "ff" or (version == "00" and more) or not int(trace, 16) or not int(span, 16):
        return None
    state = tracestate if tracestate is not None and _TRACESTATE.fullmatch(tracestate) else ""
    return TraceContext(bytes.fromhex(trace), bytes.fromhex(span), bool(int(flags, 16) & 1), state)


def read_baggage(baggage: str | None) -> str:
    """A client's `baggage` header (https://www.w3.org/TR/baggage), if it may be forwarded; else an empty text."""
    return baggage if baggage is not None and _BAGGAGE.fullmatch(baggage) else ""


class Span:
    """One timed part of a request. Times are loop time; `end` is 0 while it lasts."""

    end = 0.0
    error = ""
    """The kind of the failure that ended it."""
    events: tuple[SpanEvent, ...] = ()
    runtime = ""
    """The address of the bundled runtime that receives the request, which has spans of its own; empty for none."""

    def __init__(self, log: SpanLog, name: str, kind: Kind, parent: bytes, start: float, id: bytes = b"") -> None:
        self.log = log
        self.id = id or new_id()
        self.parent = parent
        """The id of the span around it; empty for the first span of a trace."""
        self.name = name
        self.kind = kind
        self.start = start
        self.attributes: dict[str, Attribute] = {}

    def event(self, name: str, now: float, **attributes: Attribute) -> None:
        """Record a moment."""
        if len(self.events) < MOST_EVENTS:
            self.events += ((now, name, attributes),)

    def finish(self, now: float, error: str = "") -> None:
        """End the span. Only the first call counts."""
        if not self.end:
            self.end, self.error = now, error

    def describe(self, log: SpanLog) -> None:
        """Add everything that only an exported span needs."""
        if self.error:
            self.attributes.setdefault("error.type", self.error)


class SpanContent(Protocol):
    """The texts of a request and its answer."""

    size: int
    """Bytes that it holds."""

    def omit(self) -> None:
        """Release the texts."""
        ...

    async def attributes(self) -> dict[str, Attribute]:
        """The attributes of the request's span."""
        ...


class SpanLog:
    """All spans of one request. `sampled` is the flag for other servers.

    Most traces are dropped at the end of their request, so a log begins with ids and times alone: the span of the
    request itself, `root`, exists from its first use.
    """

    parent = b""
    """The id of the client's span; empty for a new trace."""
    state = ""
    """The client's `tracestate` header, forwarded as received."""
    baggage = ""
    """The client's `baggage` header, for bundled runtimes only."""
    sampled = False
    reported: tuple[tuple[str, Span], ...] = ()
    """The spans of bundled runtimes, each with the name of its pool."""
    decided = 0.0
    """Loop time of the decision; 0 before it."""
    request: ModelRequest | None = None
    """The request as it was routed, until the trace is exported or dropped; None for a large one."""
    described: tuple[ModelRequest, dict[str, Attribute]] | None = None
    """The attributes of the last request that was described: most attempts send the request of the root."""
    contents: tuple[tuple[Span, SpanContent], ...] = ()
    """The texts of spans, on routes whose traces have texts."""
    dropped = 0
    """Spans beyond `MOST_SPANS`, which are not recorded."""
    written = -1
    """The number of spans that the journal has."""
    _root: Span | None = None

    def __init__(self, context: TraceContext | None, start: float, clock: Callable[[], float]) -> None:
        self.clock = clock
        self.start = start
        if context is None:
            bits = _random(192)
            self.trace, self._own = bits >> 64 or 1, bits & _LOW or 1
        else:
            self.trace, self._own = int.from_bytes(context.trace_id, "big"), _random(64) or 1
            self.parent, self.sampled, self.state = context.span_id, context.sampled, context.state
        self.spans: list[Span] = []

    @property
    def trace_id(self) -> bytes:
        """The id of the trace. `trace` is its number."""
        return self.trace.to_bytes(16, "big")

    @property
    def root_id(self) -> bytes:
        """The id of the span of the request."""
        return self._own.to_bytes(8, "big")

    @property
    def root(self) -> Span:
        """The span of the request."""
        if self._root is None:
            self._root = Span(self, "", "server", self.parent, self.start, self.root_id)
            self.spans.insert(0, self._root)
        return self._root

    def begin(self, name: str, kind: Kind, parent: Span | None, start: float) -> Span:
        """Start a span inside of `parent`: inside of the root if that is None."""
        span = Span(self, name, kind, self.root_id if parent is None else parent.id, start)
        self.add(span)
        return span

    def add(self, span: Span) -> None:
        """Add a span that has begun."""
        if len(self.spans) < MOST_SPANS - (self._root is None):
            self.spans.append(span)
        else:
            self.dropped += 1

    def fields(self, span: Span) -> tuple[tuple[str, str], ...]:
        """The headers that continue the trace below a span, at another server."""
        flags = "01" if self.sampled else "00"
        fields: tuple[tuple[str, str], ...] = (("traceparent", f"00-{self.trace:032x}-{span.id.hex()}-{flags}"),)
        if self.state:
            fields += (("tracestate", self.state),)
        if self.baggage and span.runtime:
            fields += (("baggage", self.baggage),)  # a client's own data, not for other companies' servers
        return fields

    def release(self) -> None:
        """Drop the spans of a request that is not exported: they refer to this log, and only a full garbage collection
        would free them."""
        self.spans.clear()
        self._root, self.request, self.described, self.contents = None, None, None, ()


def new_id() -> bytes:
    """A random id of a span, which must not be zero."""
    return (_random(64) or 1).to_bytes(8, "big")
