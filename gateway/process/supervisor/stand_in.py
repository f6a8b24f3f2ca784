"""Answers clients while no worker serves: without it, they would wait in the backlog of the sockets."""

import asyncio
import socket
from collections.abc import Callable

from adapters.errors import CapacityError
from adapters.http1.listeners import Contexts, SharedSocket
from adapters.http1.message import Request, Response
from adapters.http1.server import Limits, Server
from gateway.fronts.paths import APPS, MESSAGES
from gateway.process.supervisor.sockets import Sockets

RETRY_AFTER = 1.0
GRACE = 0.5
"""Seconds in which clients may read the last responses when a worker serves again."""
_OIP = (b"/v2", b"/v1/models/")


class StandIn:
    """`open` and `aclose`, any number of times. Its only response is 503, in the form of the API of the request."""

    def __init__(self, sockets: Sockets, contexts: Callable[[], Contexts | None]) -> None:
        """`contexts` returns the TLS contexts of the listeners; None without TLS."""
        self._sockets = sockets
        self._contexts = contexts
        self._server: Server | None = None
        self._http: list[SharedSocket] = []
        self._others: list[SharedSocket] = []

    def open(self) -> None:
        """Accept from every socket."""
        if self._server is not None:
            return
        self._server = Server(respond, Limits(max_body=1024**3, max_connections=256))
        loop, tls = asyncio.get_running_loop(), self._contexts()
        for slot in self._sockets.slots:
            for kind, bound in zip(self._sockets.kinds, slot, strict=True):
                if kind == "http":
                    self._http.append(self._server.listen_socket(bound, tls))
                else:  # a client of gRPC reports a closed connection as UNAVAILABLE
                    self._others.append(SharedSocket(loop, bound, None, socket.socket.close))

    async def aclose(self) -> None:
        """Leave the sockets to the workers."""
        server, self._server = self._server, None
        if server is None:
            return
        for shared in self._http:
            server.leave_socket(shared)
        for shared in self._others:
            shared.close().close()
        self._http, self._others = [], []
        await server.drain(GRACE)
        await server.aclose()


async def respond(http: Request) -> Response:
    """The refusal of any request."""
    from gateway.fronts import errors  # not before a worker is missing

    error = CapacityError("no process of the gateway serves at the moment", code="no_worker", retry_after=RETRY_AFTER)
    if http.target.startswith(MESSAGES):
        return errors.anthropic_response(error, [])
    if http.target.startswith(APPS):
        return errors.app_response(error, [])
    if http.target.startswith(_OIP):
        return errors.oip_response(error, [])
    return errors.openai_response(error, [])
