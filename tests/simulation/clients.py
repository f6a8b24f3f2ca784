"""Clients that know HTTP and SSE by themselves, and judge nothing."""

import asyncio
import json
from dataclasses import dataclass, field
from typing import Any, Literal

from tests.simulation.virtual import Address, VirtualLoop, Wire

Leave = Literal["never", "before", "amid", "stops_reading"]


@dataclass(slots=True)
class Order:
    """The request of a client, and when the client disconnects."""

    at: float
    id: str
    tenant: str
    key: str
    model: str
    user: str | None = None
    stream: bool = False
    prompt: int = 20
    max_tokens: int | None = None
    n: int = 1
    headers: dict[str, str] = field(default_factory=dict)
    leave: Leave = "never"
    after: float = 0.0
    """Seconds after which it leaves."""
    body: bytes = b""
    """The raw bytes in place of a request."""

    def encoded(self) -> bytes:
        """The body."""
        if self.body:
            return self.body
        content = "x" * self.prompt
        fields: dict[str, Any] = {"model": self.model, "messages": [{"role": "user", "content": content}]}
        given = {"user": self.user, "max_tokens": self.max_tokens, "stream": self.stream or None}
        fields |= {name: value for name, value in given.items() if value is not None}
        if self.n != 1:
            fields["n"] = self.n
        return json.dumps(fields).encode()


@dataclass(slots=True)
class Outcome:
    """The answer that a client received, and its times."""

    order: Order
    began: float
    ended: float = 0.0
    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    first_piece: float = 0.0
    silence: float = 0.0
    """The longest time between two pieces."""
    whole: bool = False
    """Whether the answer ended by HTTP's framing; else the connection was cut, or the client left."""
    left: bool = False

    @property
    def events(self) -> list[str]:
        """The data of each event."""
        return [e.removeprefix("data: ") for e in self.body.decode().split("\n\n") if e.startswith("data: ")]


class _ClientSide(asyncio.Protocol):
    """Reads one answer."""

    def __init__(self, seen: Outcome, loop: VirtualLoop) -> None:
        self.seen = seen
        self._loop = loop
        self._data = b""
        self._head_done = False
        self._chunked = False
        self._length = 0
        self._last = loop.time()
        self.over = loop.create_future()

    def data_received(self, data: bytes) -> None:
        self._data += data
        if self.seen.first_piece:
            self.seen.silence = max(self.seen.silence, self._loop.time() - self._last)
        self._last = self._loop.time()
        if not self._head_done:
            self._read_head()
        if self._head_done:
            self._read_chunks() if self._chunked else self._read_body()

    def _read_head(self) -> None:
        head, complete, rest = self._data.partition(b"\r\n\r\n")
        if not complete:
            return
        status, *lines = head.decode("latin-1").split("\r\n")
        names = [line.split(": ", 1)[0] for line in lines]
        assert len(names) == len(set(names)), f"a header comes twice: {names}"
        self.seen.status = int(status.split()[1])
        self.seen.headers = dict(line.split(": ", 1) for line in lines)
        self._chunked = self.seen.headers.get("transfer-encoding") == "chunked"
        assert self._chunked != ("content-length" in self.seen.headers), lines
        self._length = int(self.seen.headers.get("content-length", 0))
        self._head_done, self._data = True, rest

    def _read_body(self) -> None:
        self.seen.body = self._data
        assert len(self._data) <= self._length
        if len(self._data) == self._length:
            self._end(whole=True)

    def _read_chunks(self) -> None:
        while True:
            size, complete, rest = self._data.partition(b"\r\n")
            if not complete or len(rest) < int(size, 16) + 2:
                return None
            length = int(size, 16)
            assert rest[length : length + 2] == b"\r\n"
            if length == 0:
                assert rest == b"\r\n", "bytes after the end"
                return self._end(whole=True)
            self.seen.first_piece = self.seen.first_piece or self._loop.time()
            self.seen.body += rest[:length]
            self._data = rest[length + 2 :]

    def _end(self, *, whole: bool) -> None:
        if not self.over.done():
            self.seen.whole, self.seen.ended = whole, self._loop.time()
            self.over.set_result(None)

    def connection_lost(self, exc: Exception | None) -> None:
        self._end(whole=False)


async def send(loop: VirtualLoop, gateway: Address, order: Order) -> Outcome:
    """Send one request, on a connection of its own, until the answer's end or until the client leaves."""
    seen = Outcome(order, loop.time())
    protocol = _ClientSide(seen, loop)
    wire: Wire
    wire, _ = await loop.network.connect(lambda: protocol, gateway)
    body = order.encoded()
    fields = {
        "host": "gateway", "authorization": f"Bearer {order.key}", "content-type": "application/json",
        "x-request-id": order.id, "content-length": str(len(body)), **order.headers,
    }  # fmt: skip
    head = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
    wire.write(f"POST /v1/chat/completions HTTP/1.1\r\n{head}\r\n".encode() + body)
    if order.leave == "never":
        await protocol.over
    else:
        await asyncio.wait([protocol.over], timeout=order.after)
        if order.leave == "stops_reading":
            wire.pause_reading()
            await asyncio.wait([protocol.over], timeout=10.0)
    if not protocol.over.done():
        seen.left, seen.ended = True, loop.time()
    wire.abort()
    return seen
