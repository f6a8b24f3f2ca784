"""A server on loopback, its handlers, and gRPC's own client for it."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeVar

import grpc

from adapters.http2.accepted import Accepted, Handler, Limits, Server
from adapters.http2.call import GrpcCall
from adapters.http2.status import Code, binary_value
from tests.adapters.http1.raw import until
from tests.support.tls import server_side

T = TypeVar("T")
PATIENCE = 300.0
"""Seconds after which a test that waits in vain fails; nothing passes because of it."""
UNBOUNDED = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]


class Methods:
    """A handler with a method for each kind of call; `ends` records how the waiting calls ended."""

    def __init__(self) -> None:
        self.begun = 0
        self.ends: list[str] = []
        self.seen: list[GrpcCall] = []

    async def __call__(self, call: GrpcCall) -> None:
        self.seen.append(call)
        method = getattr(self, call.path.rpartition("/")[2].lower(), None)
        if method is None:
            call.fail(Code.UNIMPLEMENTED, f"There is no {call.path}.")
        else:
            await method(call)

    async def echo(self, call: GrpcCall) -> None:
        call.reply(await call.unary())

    async def total(self, call: GrpcCall) -> None:
        """Client streaming: the sizes of all messages."""
        size = 0
        while (message := await call.read()) is not None:
            size += len(message)
        call.reply(b"%d" % size)

    async def count(self, call: GrpcCall) -> None:
        """Server streaming: as many messages as the request states."""
        for i in range(int(await call.unary())):
            await call.write(b"%d" % i)

    async def talk(self, call: GrpcCall) -> None:
        """Bidirectional: each message back."""
        while (message := await call.read()) is not None:
            await call.write(message)

    async def reflect(self, call: GrpcCall) -> None:
        """Echoes the request's metadata as initial and trailing metadata."""
        message = await call.unary()
        call.initial_metadata = [("x-first", call.metadata["x-text"]), ("x-raw-bin", b"\0\xff")]
        call.reply(message, [("x-last", "end"), ("x-copy-bin", binary_value(call.metadata["x-data-bin"]))])

    async def fail(self, call: GrpcCall) -> None:
        code, _, text = (await call.unary()).decode().partition(" ")
        call.fail(int(code), text, [("x-why", "because")])

    async def late(self, call: GrpcCall) -> None:
        """Fails behind a message."""
        await call.write(b"one")
        call.fail(Code.ABORTED, "after one")

    async def crash(self, call: GrpcCall) -> None:
        raise ZeroDivisionError

    async def hang(self, call: GrpcCall) -> None:
        self.begun += 1
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.ends.append("cancelled")
            raise

    async def flood(self, call: GrpcCall) -> None:
        """Writes until the call ends."""
        self.begun += 1
        try:
            while True:
                await call.write(bytes(100_000))
        except BaseException as error:
            self.ends.append(type(error).__name__)
            raise


class Served:
    """A server and where it is."""

    def __init__(self, server: Server, port: int) -> None:
        self.server = server
        self.port = port

    @property
    def target(self) -> str:
        return f"127.0.0.1:{self.port}"

    def channel(self) -> grpc.Channel:
        return grpc.insecure_channel(self.target, options=UNBOUNDED)

    async def accepted(self) -> Accepted:
        """The server's side of the only open connection."""
        await until(lambda: len(self.server.connections) == 1)
        return next(iter(self.server.connections))

    async def quiet(self) -> None:
        """Wait until no call is left, and see that nothing is held for one."""
        await until(lambda: not any(c.streams for c in self.server.connections))
        for connection in self.server.connections:
            assert (connection.held, connection.outlet.unsent) == (0, 0)


@asynccontextmanager
async def serving(
    handler: Handler, limits: Limits | None = None, certificate: Path | None = None, tls: ssl.SSLContext | None = None
) -> AsyncIterator[Served]:
    """A server on loopback, over TLS when it has a certificate."""
    server = Server(handler, limits)
    context = tls or (server_side(certificate) if certificate else None)
    _, port = await server.listen_tcp("127.0.0.1", 0, context)
    try:
        yield Served(server, port)
    finally:
        await server.aclose()
        await until(lambda: not server.connections)


async def in_thread(work: Callable[[], T]) -> T:
    """Run a blocking function beside the server's loop."""
    async with asyncio.timeout(PATIENCE * 2):
        return await asyncio.to_thread(work)
