"""A server that a test scripts frame by frame."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from adapters.http2 import frames
from adapters.http2.fields import encode
from adapters.http2.frames import END_HEADERS, END_STREAM, PREFACE, frame
from tests.adapters.http2.peer import PATIENCE, Plain, framed

SETTINGS = frames.settings_frame({})
HEAD = [(":status", "200"), ("content-type", "application/grpc")]


def head(stream_id: int, *fields: tuple[str, str], end: bool = False) -> bytes:
    """A header block of these fields, or of a head that goes well."""
    block = encode([(name.encode(), value.encode()) for name, value in fields or HEAD])
    return frame(frames.HEADERS, END_HEADERS | (END_STREAM if end else 0), stream_id, block)


def trailers(stream_id: int, status: str = "0", *fields: tuple[str, str]) -> bytes:
    return head(stream_id, ("grpc-status", status), *fields, end=True)


def data(stream_id: int, payload: bytes, *, end: bool = False) -> bytes:
    return frame(frames.DATA, END_STREAM if end else 0, stream_id, payload)


def answer(stream_id: int, message: bytes) -> bytes:
    """All of an answer that goes well."""
    return head(stream_id) + data(stream_id, framed(message)) + trailers(stream_id)


class Other(Plain):
    """The server's side of a connection."""

    @property
    def frames(self) -> list[tuple[int, int, bytes]]:
        return super().frames if self.raw.startswith(b"\0") else self._behind_the_preface()

    def _behind_the_preface(self) -> list[tuple[int, int, bytes]]:
        whole, self.raw = self.raw, self.raw[len(PREFACE) :]
        try:
            return super().frames
        finally:
            self.raw = whole

    async def call(self, number: int = 1) -> int:
        """Wait for the end of the `number`th call that comes; its stream."""

        def ended() -> list[int]:
            heads = [stream_id for kind, stream_id, _ in self.frames if kind == frames.HEADERS]
            return [i for i in heads if any(kind == frames.DATA and i == of for kind, of, _ in self.frames)]

        await self.until(lambda: len(ended()) >= number or self.closed)
        return ended()[number - 1]

    async def reset(self, stream_id: int) -> int:
        """Wait until the client breaks a stream off; why."""

        def codes() -> list[int]:
            payloads = [payload for kind, of, payload in self.frames if (kind, of) == (frames.RST_STREAM, stream_id)]
            return [int.from_bytes(payload, "big") for payload in payloads]

        await self.until(codes)
        return codes()[0]


Script = Callable[[Other], Awaitable[None]]


@asynccontextmanager
async def scripted(*scripts: Script) -> AsyncIterator[str]:
    """A server whose connections follow `scripts` one after the other, the last of them again and again.

    A script that ends leaves its connection open until the client closes it.
    """
    following: list[asyncio.Task[None]] = []

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        script = scripts[min(len(following), len(scripts) - 1)]
        following.append(asyncio.create_task(_follow(script, Other(reader, writer), writer)))

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        for task in following:
            task.cancel()
        for ended in await asyncio.gather(*following, return_exceptions=True):
            if isinstance(ended, Exception):
                raise ended


async def _follow(script: Script, other: Other, writer: asyncio.StreamWriter) -> None:
    running = asyncio.create_task(other.run())
    try:
        async with asyncio.timeout(PATIENCE):
            await script(other)
            await running
    finally:
        writer.transport.abort()
        running.cancel()


def answering(make: Callable[[int], bytes]) -> Script:
    """Greets, and answers each call with what `make` makes of its stream."""

    async def script(other: Other) -> None:
        other.send(SETTINGS)
        number = 1
        while not other.closed:
            try:
                stream_id = await other.call(number)
            except IndexError:
                return
            other.send(make(stream_id))
            number += 1

    return script
