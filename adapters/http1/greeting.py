"""Selects HTTP/1.1 or HTTP/2 by the first bytes of a connection."""

import asyncio
import ssl
from typing import TYPE_CHECKING, cast

from adapters.http1.connection import Connection
from adapters.http1.host import Host

if TYPE_CHECKING:
    from adapters.http1.multiplexed import Multiplexed

PREFACE = b"PRI "
"""The beginning of HTTP/2's preface, which no HTTP/1.1 request begins with."""


class Greeting(asyncio.Protocol):
    """Hands the transport over to the protocol that the client uses. Until then the bounds of HTTP/1.1 apply."""

    def __init__(self, server: Host) -> None:
        self._server = server
        self._connection = Connection(server)
        self._received = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._connection.connection_made(transport)
        tls = transport.get_extra_info("ssl_object")
        if isinstance(tls, ssl.SSLObject) and tls.selected_alpn_protocol() == "h2":
            self._speak_http2()

    def data_received(self, data: bytes) -> None:
        data = self._received + data
        if data.startswith(PREFACE):
            self._speak_http2().data_received(data)
        elif PREFACE.startswith(data):
            self._received = data
        else:
            self._transport.set_protocol(self._connection)
            self._connection.data_received(data)

    def _speak_http2(self) -> "Multiplexed":
        from adapters.http1.multiplexed import Multiplexed  # with its library: most clients use HTTP/1.1

        spoken = Multiplexed(self._server, self._transport)
        self._transport.set_protocol(spoken)
        self._connection.connection_lost(None)  # it has read nothing
        return spoken

    def eof_received(self) -> bool | None:
        return self._connection.eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        self._connection.connection_lost(exc)
