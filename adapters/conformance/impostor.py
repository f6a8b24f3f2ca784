"""A server that misbehaves on demand. It accepts HTTP/1.1 and gRPC on one port and detects the protocol."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, Protocol, cast

from adapters.http1.connection import Connection
from adapters.http1.message import Request, Response
from adapters.http1.server import Server

PREFACE = b"PRI * HTTP/2.0"


class Behaviour(Protocol):
    """The behaviour of an impostor for every request."""

    async def http(self, request: Request) -> Response: ...

    async def grpc(self, call: Any) -> None: ...


class Impostor:
    """A scripted server. It records the fields of each request, and sets `left` when a waiting client disconnects."""

    def __init__(self, act: Behaviour) -> None:
        self._act = act
        self.url = ""
        self.requests: list[dict[str, str]] = []
        self.left = asyncio.Event()

    async def http(self, request: Request) -> Response:
        self.requests.append(dict(request.headers))
        await request.read()
        with _Departure(self.left):
            return await self._act.http(request)

    async def grpc(self, call: Any) -> None:
        self.requests.append(dict(call.metadata))
        with _Departure(self.left):
            await self._act.grpc(call)


class _Departure:
    """Sets an event when a handler is cancelled."""

    def __init__(self, seen: asyncio.Event) -> None:
        self._seen = seen

    def __enter__(self) -> None: ...

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is asyncio.CancelledError:
            self._seen.set()


class _Doorman(asyncio.Protocol):
    """Hands a connection over to the protocol that its client uses."""

    def __init__(self, http: Callable[[], asyncio.Protocol], grpc: Callable[[], asyncio.Protocol]) -> None:
        self._http = http
        self._grpc = grpc
        self._received = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._received += data
        if len(self._received) < len(PREFACE) and PREFACE.startswith(self._received):
            return
        protocol = (self._grpc if self._received.startswith(PREFACE) else self._http)()
        self._transport.set_protocol(protocol)
        protocol.connection_made(self._transport)
        protocol.data_received(self._received)


@asynccontextmanager
async def impostor(act: Behaviour) -> AsyncIterator[Impostor]:
    """Start an impostor on a loopback port."""
    made = Impostor(act)
    http = Server(made.http)
    grpc: Any = None

    def for_grpc() -> asyncio.Protocol:
        nonlocal grpc
        from adapters.http2.accepted import Accepted  # needs an extra, which every gRPC adapter has
        from adapters.http2.accepted import Server as GrpcServer

        grpc = grpc or GrpcServer(made.grpc)
        return Accepted(grpc)

    loop = asyncio.get_running_loop()
    listener = await loop.create_server(lambda: _Doorman(lambda: Connection(http), for_grpc), "127.0.0.1", 0)
    host, port = listener.sockets[0].getsockname()
    made.url = f"http://{host}:{port}"
    try:
        yield made
    finally:
        listener.close()
        for server in (http, grpc):
            if server is not None:
                await server.aclose()
