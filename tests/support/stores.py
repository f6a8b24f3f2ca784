"""Places with models, for the tests of what pulls them: an HTTP server that breaks off, and archives."""

import asyncio
import hashlib
import io
import tarfile
import threading
import zipfile
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager

import zstandard
from aiohttp import web

from adapters.stores.source import Changed, Interrupted, StoredObject


def tar_of(files: Mapping[str, bytes], mode: str = "gz") -> bytes:
    """An archive with these files, always the same bytes for the same files."""
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode=f"w:{mode}") as archive:  # type: ignore[call-overload]
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return target.getvalue()


def zstd_of(content: bytes, frame: int = 10_000) -> bytes:
    """The content in frames of so many bytes, with one that readers skip behind them, as `zstd:chunked` has it."""
    packed = [zstandard.compress(content[at : at + frame]) for at in range(0, len(content), frame)]
    return b"".join(packed) + b"\x50\x2a\x4d\x18" + (5).to_bytes(4, "little") + b"index"


def zip_of(files: Mapping[str, bytes]) -> bytes:
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return target.getvalue()


class ObjectsInMemory:
    """A place without a server. `cut` bytes of each read arrive before it is interrupted, while `cuts` are left."""

    def __init__(self, files: Mapping[str, bytes] | None = None) -> None:
        self.files = dict(files or {})
        self.items_of_archives: list[StoredObject] = []
        self.cut, self.cuts = 0, 0
        self.reads: list[tuple[str, int]] = []

    async def items(self) -> list[StoredObject]:
        plain = [StoredObject(name, name, _version(content), len(content)) for name, content in self.files.items()]
        return self.items_of_archives or plain

    async def read(self, item: StoredObject, offset: int) -> AsyncIterator[bytes]:
        self.reads.append((item.key, offset))
        content = self.files[item.key]
        if item.version != _version(content):
            raise Changed(f"{item.key} has changed")
        if self.cuts:
            self.cuts -= 1
            yield content[offset : offset + self.cut]
            raise Interrupted(f"{item.key} ended early")
        yield content[offset:]

    async def aclose(self) -> None:
        return

    def archive(self, name: str, content: bytes, kind: str = "tar") -> None:
        """Have an archive alone."""
        self.files = {name: content}
        self.items_of_archives = [StoredObject("", name, _version(content), len(content), "", kind)]  # type: ignore[arg-type]


def _version(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


class WebServer:
    """Files at an HTTP server, with ETags and ranges. `stall_after` bytes of a body, no more of it comes."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.requests: list[tuple[str, str, str]] = []
        """Method, path and range of each request."""
        self.fields: list[Mapping[str, str]] = []
        self.stall_after: int | None = None
        self.cut_after: int | None = None
        self.tagged = True
        self.ranges = True
        self.url = ""

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.requests.append((request.method, request.path, request.headers.get("range", "")))
        self.fields.append(dict(request.headers))
        content = self.files.get(request.path)
        if content is None:
            return web.Response(status=404)
        tag = f'"{hashlib.sha256(content).hexdigest()[:16]}"'
        headers = {"etag": tag} if self.tagged else {}
        start = 0
        requested = request.headers.get("range", "")
        if self.ranges and requested.startswith("bytes=") and request.headers.get("if-range", tag) == tag:
            start = int(requested.removeprefix("bytes=").partition("-")[0])
            headers["content-range"] = f"bytes {start}-{len(content) - 1}/{len(content)}"
        response = web.StreamResponse(status=206 if "content-range" in headers else 200, headers=headers)
        response.content_length = len(content) - start
        await response.prepare(request)
        if request.method != "HEAD":
            await self._send(response, content[start:], request)
        return response

    async def _send(self, response: web.StreamResponse, body: bytes, request: web.Request) -> None:
        if self.cut_after is not None and len(body) > self.cut_after:
            await response.write(body[: self.cut_after])
            assert request.transport is not None
            request.transport.close()
        elif self.stall_after is not None and len(body) > self.stall_after:
            await response.write(body[: self.stall_after])
            await asyncio.Event().wait()
        else:
            await response.write(body)


@asynccontextmanager
async def web_server() -> AsyncIterator[WebServer]:
    """A server on loopback, in this event loop."""
    server = WebServer()
    application = web.Application()
    application.router.add_route("*", "/{path:.*}", server.answer)
    runner = web.AppRunner(application, handler_cancellation=True, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    server.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield server
    finally:
        await runner.cleanup()


@contextmanager
def web_server_of_a_thread() -> Iterator[WebServer]:
    """A server on loopback, in a thread: for tests of processes, which wait without an event loop."""
    ready, stop = threading.Event(), asyncio.Event()
    servers: list[WebServer] = []
    loop = asyncio.new_event_loop()

    async def serve() -> None:
        async with web_server() as server:
            servers.append(server)
            ready.set()
            await stop.wait()

    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),))
    thread.start()
    assert ready.wait(60)
    try:
        yield servers[0]
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(60)
        loop.close()
