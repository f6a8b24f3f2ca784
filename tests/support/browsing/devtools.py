"""A connection to a browser's DevTools: commands, their results, and events."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import aiohttp

SECONDS = 300.0
Listener = Callable[[str, dict[str, Any]], None]


class DevToolsError(Exception):
    """The browser refused a command."""


class DevTools:
    """One connection, for all pages of a browser."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._numbers = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self.listeners: dict[str, Listener] = {}
        """Receivers of events by session."""

    async def send(self, method: str, session: str | None = None, **parameters: Any) -> dict[str, Any]:
        """The result of a command. Raises `DevToolsError`."""
        number = next(self._numbers)
        reply = self._waiting[number] = asyncio.get_running_loop().create_future()
        message = {"id": number, "method": method, "params": parameters}
        await self._socket.send_json(message if session is None else {**message, "sessionId": session})
        async with asyncio.timeout(SECONDS):
            return dict(await reply)

    async def run(self) -> None:
        """Receive until the connection ends."""
        async for received in self._socket:
            message = received.json()
            if "id" not in message:
                if listener := self.listeners.get(message.get("sessionId", "")):
                    listener(message["method"], message["params"])
                continue
            reply = self._waiting.pop(message["id"])
            if reply.done():
                continue
            if "error" in message:
                reply.set_exception(DevToolsError(message["error"]["message"]))
            else:
                reply.set_result(message["result"])


@asynccontextmanager
async def connected(address: str) -> AsyncIterator[DevTools]:
    """A connection to the browser at an address."""
    async with aiohttp.ClientSession() as http, http.ws_connect(address, max_msg_size=0) as socket:
        tools = DevTools(socket)
        receiver = asyncio.create_task(tools.run())
        try:
            yield tools
        finally:
            receiver.cancel()
            with suppress(asyncio.CancelledError):
                await receiver
