"""Bytes to and from a real server: no client library stands between a test and the wire."""

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from adapters.errors import InferenceError, TooLarge
from adapters.http1.connection import Connection
from adapters.http1.message import Handler, Request, Response
from adapters.http1.server import Limits, Server
from tests.support.tls import client_side, server_side

PATIENCE = 300.0
"""Seconds after which a test that waits in vain fails; nothing passes because of it."""


def get(path: str = "/", *fields: str) -> bytes:
    """A request without a body."""
    return "".join([f"GET {path} HTTP/1.1\r\nHost: x\r\n", *[f"{f}\r\n" for f in fields], "\r\n"]).encode("latin-1")


def post(*fields: str, body: bytes = b"", version: str = "1.1") -> bytes:
    """A request whose framing is the caller's to write."""
    head = "".join([f"POST / HTTP/{version}\r\nHost: x\r\n", *[f"{f}\r\n" for f in fields], "\r\n"])
    return head.encode("latin-1") + body


class Echo:
    """Responds with the parsed request, so that a test can check the boundaries."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    async def __call__(self, request: Request) -> Response:
        self.seen.append(request.path)
        try:
            body = await request.read()
        except InferenceError as error:
            return Response(error_status(error), body=error.code.encode())
        fields = {
            "method": request.method,
            "path": request.path,
            "query": request.query,
            "body": body.decode("latin-1"),
        }
        fields["authorization"] = request.headers.get("authorization") or ""
        return Response(200, [("content-type", "application/json")], json.dumps(fields).encode())


def error_status(error: InferenceError) -> int:
    """The status of a body that could not be read."""
    return 413 if isinstance(error, TooLarge) else 408 if error.code == "request_timeout" else 400


@dataclass
class Reply:
    """One response, unparsed."""

    status: int
    headers: dict[str, str]
    body: bytes = b""
    chunks: list[bytes] = field(default_factory=list)

    @property
    def decoded(self) -> Any:
        return json.loads(self.body)


class Raw:
    """A client that sends arbitrary bytes."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self._ahead = b""

    def send(self, data: bytes) -> None:
        """Write; where the server has reset the connection, into nothing: uvloop would raise."""
        if not self.writer.transport.is_closing():
            self.writer.write(data)

    async def reply(self, method: str = "GET") -> Reply:
        """Read one response; `IncompleteReadError` when the connection ends before it does."""
        async with asyncio.timeout(PATIENCE):
            reply = await self._head()
            if method == "HEAD" or reply.status in (204, 304) or reply.status < 200:
                return reply
            if reply.headers.get("transfer-encoding") == "chunked":
                while chunk := await self._chunk():
                    reply.chunks.append(chunk)
                reply.body = b"".join(reply.chunks)
            elif "content-length" in reply.headers:
                reply.body = await self.reader.readexactly(int(reply.headers["content-length"]))
            else:
                reply.body = await self.reader.read()
            return reply

    async def _head(self) -> Reply:
        ahead, self._ahead = self._ahead, b""
        lines = (ahead + await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        fields = [(name, value) for name, _, value in (line.partition(": ") for line in lines[1:] if line)]
        headers = dict(fields)
        assert len(headers) == len(fields), f"a field is given twice: {lines}"
        return Reply(int(lines[0].split(" ")[1]), headers)

    async def _chunk(self) -> bytes:
        size = int(await self.reader.readuntil(b"\r\n"), 16)
        data = await self.reader.readexactly(size + 2)
        assert data.endswith(b"\r\n")
        return data[:-2]

    async def replies(self) -> list[Reply]:
        """All responses until the server closes."""
        listed = []
        while await self._more():
            listed.append(await self.reply())
        return listed

    async def _more(self) -> bool:
        """Whether another byte comes before the end."""
        async with asyncio.timeout(PATIENCE):
            try:
                self._ahead = await self.reader.readexactly(1)
            except asyncio.IncompleteReadError:
                return False
        return True

    async def rest(self) -> bytes:
        """All bytes until the end, however the connection ends."""
        received = bytearray()
        async with asyncio.timeout(PATIENCE):
            try:
                while data := await self.reader.read(65536):
                    received += data
            except ConnectionError:
                pass
        return bytes(received)

    def close(self) -> None:
        self.writer.transport.abort()


class Served:
    """A server on loopback and the clients that a test opened to it."""

    def __init__(self, server: Server, port: int, tls: ssl.SSLContext | None) -> None:
        self.server = server
        self.port = port
        self._tls = tls
        self._clients: list[Raw] = []

    async def connect(self) -> Raw:
        client = Raw(*await asyncio.open_connection("127.0.0.1", self.port, limit=2**20, ssl=self._tls))
        self._clients.append(client)
        return client

    async def accepted(self) -> Connection:
        """The server's side of the only open connection."""
        await until(lambda: len(self.server.connections) == 1)
        (accepted,) = self.server.connections
        assert isinstance(accepted, Connection)
        return accepted

    def close(self) -> None:
        for client in self._clients:
            client.close()


@asynccontextmanager
async def serving(
    handler: Handler, limits: Limits | None = None, certificate: Path | None = None
) -> AsyncIterator[Served]:
    """A server on loopback, over TLS when it has a certificate."""
    server = Server(handler, limits)
    _, port = await server.listen_tcp("127.0.0.1", 0, server_side(certificate) if certificate else None)
    served = Served(server, port, client_side(certificate) if certificate else None)
    try:
        yield served
    finally:
        served.close()
        await server.aclose()
        await until(lambda: not server.connections)


async def until(condition: Callable[[], bool]) -> None:
    """Let the loop run until `condition` holds."""
    async with asyncio.timeout(PATIENCE):
        while not condition():
            await asyncio.sleep(0.001)
