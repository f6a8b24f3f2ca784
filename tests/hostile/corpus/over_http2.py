"""One case of HTTP/2 on one connection, and the defect of the answer."""

import asyncio
from dataclasses import dataclass, field

import hpack

from tests.hostile.corpus.cases import KINDS, Case, frames

PATIENCE = 300.0
LAST = frames([{"frame": "PING", "hex": "636f72707573ff00"}])
"""A server that has answered this one has handled all that came before it."""


@dataclass
class Frames:
    """The frames that the server sent back."""

    goaway: int | None = None
    closed: bool = False
    ponged: bool = False
    resets: dict[int, int] = field(default_factory=dict)
    heads: dict[int, dict[str, str]] = field(default_factory=dict)
    wrong: str = ""

    @property
    def ended(self) -> bool:
        """Whether the server ended the connection for a reason."""
        return self.closed or bool(self.goaway)


class Reading:
    """Cuts bytes into frames."""

    def __init__(self) -> None:
        self.seen = Frames()
        self._rest = b""
        self._decoder = hpack.Decoder()

    def feed(self, data: bytes) -> None:
        self._rest += data
        while len(self._rest) >= 9:
            size = int.from_bytes(self._rest[:3], "big")
            if len(self._rest) < 9 + size:
                return
            kind, flags = self._rest[3], self._rest[4]
            stream = int.from_bytes(self._rest[5:9], "big")
            payload, self._rest = self._rest[9 : 9 + size], self._rest[9 + size :]
            self._on_frame(kind, flags, stream, payload)

    def _on_frame(self, kind: int, flags: int, stream: int, payload: bytes) -> None:
        seen = self.seen
        if kind == KINDS["GOAWAY"]:
            seen.goaway = int.from_bytes(payload[4:8], "big")
        elif kind == KINDS["RST_STREAM"]:
            seen.resets.setdefault(stream, int.from_bytes(payload, "big"))
        elif kind == KINDS["PING"] and flags & 1:
            seen.ponged = payload == LAST[9:] or seen.ponged
        elif kind == KINDS["HEADERS"]:
            fields = {str(name): str(value) for name, value in self._decoder.decode(payload)}
            seen.heads[stream] = {**seen.heads.get(stream, {}), **fields}


async def play(case: Case, host: str, port: int) -> str:
    """Why the server fails the case; empty when it passes."""
    reader, writer = await asyncio.open_connection(host, port)
    reading = Reading()
    try:
        async with asyncio.timeout(PATIENCE):
            writer.write(case.sent + (b"" if case.expect == "connection" else LAST))
            while not _over(case, reading.seen):
                try:
                    data = await reader.read(65536)
                except ConnectionError:
                    data = b""
                if not data:
                    reading.seen.closed = True
                    break
                reading.feed(data)
    except TimeoutError:
        return f"nothing more comes: {reading.seen}"
    except hpack.HPACKError as error:
        return f"a head cannot be read: {error}"
    finally:
        writer.transport.abort()
    return judge(case, reading.seen)


def _over(case: Case, seen: Frames) -> bool:
    if case.expect == "connection":
        return seen.closed
    return seen.ended or (seen.ponged and (1 in seen.resets or 1 in seen.heads))


def judge(case: Case, seen: Frames) -> str:
    """A stream's error may end the connection, too (RFC 9113, 5.4)."""
    if case.expect == "connection":
        return "" if seen.ended and seen.goaway != 0 else f"the connection goes on: {seen}"
    head = seen.heads.get(1, {})
    if case.expect == "stream":
        refused = int(head.get(":status", "0")) >= 400 or head.get("grpc-status", "0") != "0"
        return "" if refused or seen.resets.get(1) or seen.ended else f"the stream was answered: {seen}"
    return "" if head and not seen.ended else f"the stream was not answered: {seen}"
