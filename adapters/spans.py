"""The spans of one traced request: the parts of a trace that a collector shows. An untraced request has none.

Contexts are those of W3C Trace Context (https://www.w3.org/TR/trace-context-1): 16 bytes of a trace, 8 of a span.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from random import Random
from typing import Literal, NamedTuple, Protocol

Kind = Literal["internal", "server", "client"]
Attribute = str | bool | int | float | tuple[str, ...]
SpanEvent = tuple[float, str, dict[str, Attribute]]
"""Loop time, name and attributes."""

MOST_SPANS = 256
MOST_EVENTS = 64

_TRACEPARENT = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")
_TRACESTATE = re.compile(r"[ -~]{1,512}")
_BAGGAGE = re.compile(r"[!-~ \t]{1,4096}")
_ids = Random()
"""Ids are unique, not secret."""


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

    __slots__ = ("attributes", "end", "error", "events", "id", "kind", "log", "name", "parent", "runtime", "start")

    def __init__(self, log: SpanLog, name: str, kind: Kind, parent: bytes, start: float, id: bytes = b"") -> None:
        self.log = log
        self.id = id or _new_id(8)
        self.parent = parent
        """The id of the span around it; empty for the first span of a trace."""
        self.name = name
        self.kind = kind
        self.start = start
        self.end = 0.0
        self.error = ""
        """The kind of the failure that ended it."""
        self.attributes: dict[str, Attribute] = {}
        self.events: list[SpanEvent] = []
        self.runtime = ""
        """The address of the bundled runtime that receives the request, which has spans of its own; empty for none."""

    def event(self, name: str, now: float, **attributes: Attribute) -> None:
        """Record a moment."""
        if len(self.events) < MOST_EVENTS:
            self.events.append((now, name, attributes))

    def finish(self, now: float, error: str = "") -> None:
        """End the span. Only the first call counts."""
        if not self.end:
            self.end, self.error = now, error

    def describe(self) -> None:
        """Add the name and the attributes that only an exported span needs."""
        if self.error:
            self.attributes.setdefault("error.type", self.error)

    @property
    def fields(self) -> tuple[tuple[str, str], ...]:
        """The headers that continue the trace at another server."""
        log = self.log
        flags = "01" if log.sampled else "00"
        parent = ("traceparent", f"00-{log.trace_id.hex()}-{self.id.hex()}-{flags}")
        if not log.state and not log.baggage:
            return (parent,)
        fields = [parent]
        if log.state:
            fields.append(("tracestate", log.state))
        if log.baggage and self.runtime:
            fields.append(("baggage", log.baggage))  # a client's own data, not for other companies' servers
        return tuple(fields)


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
    """All spans of one request. `root` is the span of the request itself, `sampled` the flag for other servers."""

    __slots__ = (
        "baggage", "clock", "content", "decided", "dropped", "reported", "rollout", "root", "sampled", "spans", "state",
        "trace_id",
    )  # fmt: skip

    def __init__(self, context: TraceContext | None, start: float, clock: Callable[[], float]) -> None:
        self.clock = clock
        if context is None:
            ids = _new_id(24)
            self.trace_id, own, parent, self.sampled, self.state = ids[:16], ids[16:], b"", False, ""
        else:
            own = _new_id(8)
            self.trace_id, parent, self.sampled, self.state = context
        self.baggage = ""
        """The client's `baggage` header, for bundled runtimes only."""
        self.reported: list[tuple[str, Span]] = []
        """The spans of bundled runtimes, each with the name of its pool."""
        self.decided: Callable[[], SpanEvent] | None = None
        """The event of the decision, which only an exported trace needs."""
        self.content: SpanContent | None = None
        """On a route whose traces have texts."""
        self.rollout = False
        """Whether the request was assigned to the new arm of a rollout."""
        self.dropped = 0
        """Spans beyond `MOST_SPANS`, which are not recorded."""
        self.root = Span(self, "", "server", parent, start, own)
        self.spans = [self.root]

    def begin(self, name: str, kind: Kind, parent: Span | None, start: float) -> Span:
        """Start a span inside of `parent`: inside of the root if that is None."""
        span = Span(self, name, kind, (parent or self.root).id, start)
        self.add(span)
        return span

    def add(self, span: Span) -> None:
        """Add a span that has begun."""
        if len(self.spans) < MOST_SPANS:
            self.spans.append(span)
        else:
            self.dropped += 1

    def release(self) -> None:
        """Drop the spans of a request that is not exported: they refer to this log, and only a full garbage collection
        would free them."""
        for span in self.spans:
            del span.log
        self.spans.clear()
        self.content = None


def _new_id(size: int) -> bytes:
    """A random id, which must not be zero."""
    return (_ids.getrandbits(8 * size) or 1).to_bytes(size, "big")
