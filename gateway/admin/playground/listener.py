"""The Unix socket on which a process that serves clients receives the console's requests to models."""

from pathlib import Path

import msgspec

from adapters.http1.budget import Budget
from adapters.http1.host import Limits
from adapters.http1.message import Request, Response
from adapters.http1.server import Server
from gateway.admin.playground.door import PlaygroundDoor
from gateway.fronts.errors import openai_refusal
from gateway.fronts.listener import Fronts
from gateway.request.core import Core

OUTCOMES = b"/outcomes/"
MOST_CONNECTIONS = 64


class PlaygroundListener:
    """`listen`, then `drain` and `aclose`. Only this user can connect to the socket."""

    def __init__(self, core: Core, max_body: int, memory: Budget) -> None:
        self._door = PlaygroundDoor(core)
        self._fronts = Fronts(self._door)
        limits = Limits(max_body=max_body, max_connections=MOST_CONNECTIONS)
        self._server = Server(self._answer, limits, openai_refusal, memory)

    async def listen(self, path: str | Path) -> None:
        """Listen."""
        await self._server.listen_unix(path)

    async def drain(self, seconds: float) -> bool:
        """Stop accepting and wait for requests. True if all ended within `seconds`."""
        return await self._server.drain(seconds)

    async def aclose(self) -> None:
        """Stop at once."""
        await self._server.aclose()

    async def _answer(self, http: Request) -> Response:
        if not http.target.startswith(OUTCOMES):
            return await self._fronts(http)
        outcome = self._door.outcome(http.target[len(OUTCOMES) :].decode("latin-1"))
        if outcome is None:
            return Response(404)
        return Response(200, [("content-type", "application/json")], msgspec.json.encode(outcome))
