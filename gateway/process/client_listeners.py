"""The HTTP and gRPC servers that clients connect to."""

import asyncio
import logging
import socket
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from adapters.http1.budget import Budget
from adapters.http1.listeners import Listeners, SharedSocket, Siblings
from adapters.http1.message import Handler, Refusal
from adapters.http1.server import Limits, Server
from adapters.process import clients_that_fit
from config.installing import installing
from config.schema.config import Config, HttpConfig, ListenConfig
from config.schema.listen import ListenerKind
from gateway.errors import StartError
from gateway.fronts.door import Door
from gateway.traffic.fleet.server_tls import ServerFiles, ServerTls

if TYPE_CHECKING:
    from adapters.http2.accepted import Server as GrpcServer

log = logging.getLogger(__name__)
CUT_SECONDS = 1.0
"""Time in which the requests that are cut at the end of a drain send their errors."""


class ClientListeners:
    """`open`, then `listen_tcp` or `listen_socket`; `drain` and `aclose` at the end."""

    def __init__(self, config: Config, lent: ServerFiles | None = None) -> None:
        self.http_address = ("", 0)
        self.grpc_address: tuple[str, int] | None = None
        self.picker_address: tuple[str, int] | None = None
        self._has_grpc = config.listen.grpc is not None
        # The server selects the first of these protocols that a client supports.
        self._picks = config.listen.endpoint_picker is not None
        self._alternatives = config.listen.endpoint_picker_alternatives
        self._tls = ServerTls(
            config.listen.tls, *(("http/1.1", "h2") if config.http.http2 else ("http/1.1",)), lent=lent
        )
        self._grpc_tls = ServerTls(config.listen.tls, "h2", lent=lent)
        self._picker_tls = ServerTls(config.listen.tls, "h2", lent=lent)
        self.certificates = {"http": self._tls, "grpc": self._grpc_tls, "endpoint_picker": self._picker_tls}
        self._http: Server
        self._grpc: GrpcServer | None = None
        self._picker: GrpcServer | None = None

    def load_certificates(self) -> None:
        """Read the certificates' files again. Raises `FleetError`."""
        self._tls.load()
        if self._has_grpc:
            self._grpc_tls.load()
        if self._picks:
            self._picker_tls.load()

    def open(
        self,
        handler: Handler,
        door: Door,
        ready: Callable[[], bool],
        refuse: Refusal,
        config: HttpConfig,
        memory: Budget,
        uploads: Mapping[bytes, int] | None = None,
    ) -> None:
        """Create the servers. `uploads` are the largest bodies by path, for bodies that are read in pieces.

        Raises `StartError`."""
        config = _within_open_files(config, listeners=1 + self._has_grpc + self._picks)
        limits = _limits(config, uploads or {})
        self._http = Server(handler, limits, refuse, memory)
        if self._has_grpc:
            self._grpc = _grpc_server(door, ready, config)
        if self._picks:
            self._picker = _picker_server(handler, limits, refuse, ready, memory, self._alternatives)

    @property
    def connections(self) -> int:
        """Open HTTP connections."""
        return len(self._http.connections)

    async def listen_tcp(self, listen: ListenConfig) -> None:
        """Accept on the configured addresses. Raises `OSError`."""
        http, grpc = listen.http, listen.grpc
        self.http_address = await self._http.listen_tcp(http.host, http.port, self._tls.contexts)
        if self._grpc is not None and grpc is not None:
            self.grpc_address = await self._grpc.listen_tcp(grpc.host, grpc.port, self._grpc_tls.contexts)
        if self._picker is not None and (picker := listen.endpoint_picker) is not None:
            self.picker_address = await self._picker.listen_tcp(picker.host, picker.port, self._picker_tls.contexts)

    def listen_socket(
        self, bound: socket.socket, kind: ListenerKind, siblings: Siblings | None
    ) -> tuple[Listeners, SharedSocket]:
        """Accept from a socket that another process bound. Returns the server and its listener."""
        server, tls = self._server(kind)
        return server, server.listen_socket(bound, tls.contexts, siblings)

    def adopt(self, kind: ListenerKind, accepted: socket.socket) -> None:
        """Serve a connection that another process has accepted."""
        self._server(kind)[0].adopt(accepted)

    def _server(self, kind: ListenerKind) -> tuple[Listeners, ServerTls]:
        if kind == "http":
            return self._http, self._tls
        server, tls = (self._grpc, self._grpc_tls) if kind == "grpc" else (self._picker, self._picker_tls)
        assert server is not None
        return server, tls

    async def drain(self, seconds: float) -> bool:
        """Stop accepting and wait for requests. True if all ended within `seconds`."""
        ended = all(await asyncio.gather(*(server.drain(seconds) for server in self._servers)))
        if not ended:
            await self._cut()
        return ended

    async def _cut(self) -> None:
        """End the requests that are still in progress, each with an error of its door."""
        cut = sum(await asyncio.gather(*(server.cut_requests(CUT_SECONDS) for server in self._servers)))
        if cut:
            log.warning("requests cut, because they did not end within `drain`: %d", cut)

    @property
    def _servers(self) -> list["Server | GrpcServer"]:
        return [server for server in (self._http, self._grpc, self._picker) if server is not None]

    async def aclose(self) -> None:
        """Drop every connection, after a second signal those with requests too."""
        await self._cut()
        for server in (self._picker, self._grpc):
            if server is not None:
                await server.aclose()
        await self._http.aclose()


def _grpc_server(door: Door, ready: Callable[[], bool], config: HttpConfig) -> "GrpcServer":
    try:
        from gateway.fronts.grpc.listener import grpc_server
    except ModuleNotFoundError as error:
        raise StartError(f"listen.grpc: the package {error.name} is missing: {installing('grpc')}") from None
    return grpc_server(door, ready, config)


def _picker_server(
    handler: Handler,
    limits: Limits,
    refuse: Refusal,
    ready: Callable[[], bool],
    memory: Budget,
    alternatives: int,
) -> "GrpcServer":
    try:
        from gateway.features.picker.listener import PickerServer
    except ModuleNotFoundError as error:
        raise StartError(f"listen.endpoint_picker: the package {error.name} is missing: {installing('grpc')}") from None
    return PickerServer(handler, limits, refuse, ready, memory, alternatives)


def _within_open_files(config: HttpConfig, listeners: int) -> HttpConfig:
    """Reduce `max_connections` to the number that the limit of open files allows.

    Each listener may have that number of clients, and each client's request may need an upstream connection.
    """
    fit = clients_that_fit(config.max_connections, 2 * listeners)
    return config.model_copy(update={"max_connections": fit})


def _limits(config: HttpConfig, uploads: Mapping[bytes, int]) -> Limits:
    return Limits(
        max_head=config.max_head,
        max_body=config.max_body,
        head_timeout=config.head_timeout,
        body_timeout=config.body_timeout,
        keepalive_timeout=config.keepalive_timeout,
        send_timeout=config.send_timeout,
        max_connections=config.max_connections,
        http2=config.http2,
        uploads=uploads,
    )
