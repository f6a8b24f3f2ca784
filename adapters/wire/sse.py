"""Server-sent events (WHATWG HTML 9.2): `data` lines, which inference servers use."""

from typing import Protocol

MAX_EVENT = 64 * 1024 * 1024
"""Bytes of an event by default: pictures are events of many megabytes."""
_LF = ord("\n")


class EventTooLarge(ValueError):
    """An event larger than its limit."""


def encode(data: bytes) -> bytes:
    """Encode an event. `data` must not contain a line break."""
    return b"data: " + data + b"\n\n"


def data_of(event: bytes) -> bytes:
    """Return the payload of one event: its `data` lines, joined."""
    if event.startswith(b"data: ") and b"\n" not in event:
        return event[6:]
    lines = [line[5:].removeprefix(b" ") for line in event.split(b"\n") if line.startswith(b"data:")]
    return b"\n".join(lines)


def count_json_lines(piece: bytes) -> int:
    """The number of events of a piece that consists of whole events of one line, `data: {…}`; 0 for any other piece."""
    if not piece.startswith(b"data: {") or not piece.endswith(b"}\n\n") or b"\r" in piece:
        return 0
    count = piece.count(b"\n\n")
    return count if piece.count(b"\n") == 2 * count and piece.count(b"\n\ndata: {") == count - 1 else 0


class EventSplitter(Protocol):
    """Splits the pieces of a stream into events."""

    @property
    def halfway(self) -> bool:
        """Whether an event is incomplete."""
        ...

    def feed(self, data: bytes) -> list[bytes]:
        """Return the events that `data` completes, each without its final blank line."""
        ...


class Splitter:
    """Splits a byte stream into events of at most `limit` bytes.

    Line ends are normalised to LF. An event is returned without its final blank line.
    """

    __slots__ = ("_after_cr", "_limit", "_rest")

    def __init__(self, limit: int = MAX_EVENT) -> None:
        self._limit = limit
        self._rest = bytearray()
        self._after_cr = False

    @property
    def is_between_events(self) -> bool:
        """Whether the next byte begins an event."""
        return not self._rest and not self._after_cr

    @property
    def halfway(self) -> bool:
        """Whether an event is incomplete."""
        return bool(self._rest.strip(b"\n"))

    def feed(self, data: bytes) -> list[bytes]:
        """Return the events that `data` completes."""
        if self._after_cr or b"\r" in data:
            data = self._normalise(data)
        if self._rest:
            # A large event is joined once, at its end.
            ends = b"\n\n" in data or (data.startswith(b"\n") and self._rest.endswith(b"\n"))
            self._rest += data
            if len(self._rest) > self._limit:
                raise self._too_large()
            if not ends:
                return []
            data, self._rest = bytes(self._rest), bytearray()
        events = data.split(b"\n\n")
        if rest := events.pop():
            self._rest += rest
            if len(rest) > self._limit:
                raise self._too_large()
        for event in events:
            if not event or event[0] == _LF:  # an extra blank line is not an event
                return [event.lstrip(b"\n") for event in events if event.strip(b"\n")]
        return events

    @property
    def rest(self) -> bytes:
        """The bytes of an incomplete event."""
        return bytes(self._rest)

    def _too_large(self) -> EventTooLarge:
        return EventTooLarge(f"an event exceeds {self._limit} bytes")

    def _normalise(self, data: bytes) -> bytes:
        """Convert CRLF and CR to LF. A CR ends its line at once; a subsequent LF is part of the same line end."""
        if self._after_cr:
            data = data.removeprefix(b"\n")
        self._after_cr = data.endswith(b"\r")
        return data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
