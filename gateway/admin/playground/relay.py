"""Sends a request of the console to a process that serves clients, and forwards the response as it arrives."""

import asyncio
import io
import secrets
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from typing import Any, NamedTuple, TypeVar

import aiohttp
from aiohttp import web
from yarl import URL

from gateway.admin.playground.caller import HEADER, encode_caller
from gateway.auth.keys import Principal
from gateway.fronts.door import EXPLAIN

T = TypeVar("T")
CLIENT_LEFT = 499
BASE = "http://gateway"
MOST_CALLS = 256
"""Calls whose socket is stored for their outcomes."""
LEFT_SECONDS = 0.25
"""The period in which the relay detects that the browser has left."""
OUTCOME_SECONDS = 5.0
_FORWARDED = ("content-type", "retry-after", "inference-header-content-length")


class NoProcess(Exception):
    """No process serves clients at this moment."""


class PlaygroundCall(NamedTuple):
    """A request to a path of the data listener. The relay chooses its id."""

    principal: Principal
    method: str
    path: str
    body: bytes = b""


class PlaygroundRelay:
    """`socket` returns the path of the private socket of a process; None if no process serves."""

    def __init__(self, socket: Callable[[], str | None]) -> None:
        self._socket = socket
        self._calls: dict[str, tuple[str, str]] = {}

    async def forward(self, call: PlaygroundCall, request: web.Request) -> web.StreamResponse:
        """Answer a request of the browser. Raises `NoProcess`."""
        id = f"console-{secrets.token_hex(10)}"
        headers = {
            HEADER: encode_caller(call.principal),
            "x-request-id": id,
            "content-type": "application/json",
            EXPLAIN: "1",
        }
        async with self._connected() as (session, path):
            self._remember(id, path, call.principal.tenant)
            source = await _unless_left(request, _sent(session, call, headers))
            if source is None:
                return web.Response(status=CLIENT_LEFT)
            try:
                return await _streamed(request, source, id)
            finally:
                source.close()

    async def outcome(self, id: str, tenant: str | None) -> bytes | None:
        """The outcome of a call of a tenant as JSON; None if there is none. Raises `NoProcess`."""
        path, owner = self._calls.get(id, ("", ""))
        if not path or tenant not in (None, owner):
            return None
        connector = aiohttp.UnixConnector(path=path)
        try:
            async with asyncio.timeout(OUTCOME_SECONDS), aiohttp.ClientSession(connector=connector) as session:
                while True:  # a request ends a moment after its last byte
                    async with session.get(f"{BASE}/outcomes/{id}") as response:
                        if response.status == 200:
                            return await response.read()
                    await asyncio.sleep(0.02)
        except TimeoutError:
            return None
        except (aiohttp.ClientError, OSError):
            raise NoProcess("the process that served the request has ended") from None

    def _remember(self, id: str, path: str, tenant: str) -> None:
        if len(self._calls) >= MOST_CALLS:
            del self._calls[next(iter(self._calls))]
        self._calls[id] = path, tenant

    @asynccontextmanager
    async def _connected(self) -> AsyncIterator[tuple[aiohttp.ClientSession, str]]:
        path = self._socket()
        if path is None:
            raise NoProcess("no process serves clients now: retry later")
        connector = aiohttp.UnixConnector(path=path)
        timeout = aiohttp.ClientTimeout(total=None)  # the gateway bounds each wait of a request itself
        try:
            async with aiohttp.ClientSession(connector=connector, timeout=timeout) as session:
                yield session, path
        except aiohttp.ClientError as error:
            raise NoProcess(f"the process that serves clients ended: {error or type(error).__name__}") from None


async def _sent(
    session: aiohttp.ClientSession, call: PlaygroundCall, headers: Mapping[str, str]
) -> aiohttp.ClientResponse:
    body = io.BytesIO(call.body) if call.body else None
    return await session.request(call.method, URL(f"{BASE}{call.path}", encoded=True), data=body, headers=headers)


async def _streamed(request: web.Request, source: aiohttp.ClientResponse, id: str) -> web.StreamResponse:
    """Send each piece to the browser when it arrives."""
    forwarded = {
        name: value
        for name, value in source.headers.items()
        if name.lower() in _FORWARDED or name.lower().startswith(("x-headrace-", "x-ratelimit-"))
    }
    response = web.StreamResponse(status=source.status, headers={**forwarded, "x-request-id": id})
    await response.prepare(request)
    try:
        while data := await _unless_left(request, source.content.readany()):
            await response.write(data)
        await response.write_eof()
    except (aiohttp.ClientError, ConnectionError):  # the browser has left, or the response is not whole
        if request.transport is not None:
            request.transport.abort()
    return response


async def _unless_left(request: web.Request, work: Coroutine[Any, Any, T]) -> T | None:
    """The result of a wait; None when the browser has left, which cancels the wait."""
    task = asyncio.create_task(work)
    try:
        while not (await asyncio.wait({task}, timeout=LEFT_SECONDS))[0]:
            if request.transport is None or request.transport.is_closing():
                return None
        return task.result()
    finally:
        task.cancel()
