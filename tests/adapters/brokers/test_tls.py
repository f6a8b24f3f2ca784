"""Clients of brokers over TLS: the name that the server's certificate must have."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from adapters.brokers.base import BrokerUnavailable, make, tls_of
from config.schema.bus import BrokerConfig
from tests.support.tls import make_certificate, server_side

NAME = "broker.internal"
INFO = b'INFO {"server_id":"a","version":"2.10.0","max_payload":1048576,"tls_required":true}\r\n'


class Listener:
    """A server whose certificate has the name `NAME`. It reads the first bytes of a client over TLS."""

    def __init__(self, folder: Path, greeting: bytes) -> None:
        self.certificate = folder / "cert.pem"
        self.context = server_side(folder)
        self.context.sni_callback = self._name
        self._greeting = greeting
        self.names: list[str | None] = []
        self.began: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self.port = 0
        self._serving = set[asyncio.Future[None]]()

    def _name(self, _: object, name: str | None, __: object) -> None:
        self.names.append(name)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            if self._greeting:
                writer.write(self._greeting)
                await writer.start_tls(self.context)
            first = await reader.read(1000)
            if first and not self.began.done():
                self.began.set_result(first)
            if self._greeting:
                writer.write(b"PONG\r\n")
                while await reader.read(1000):
                    pass
        writer.transport.abort()  # without waiting for the client's end of TLS
        with suppress(OSError):
            await writer.wait_closed()

    def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._serving.add(asyncio.ensure_future(self.serve(reader, writer)))

    async def ended(self) -> None:
        """Wait until all connections are closed."""
        async with asyncio.timeout(300):
            await asyncio.gather(*self._serving)

    def config(self, scheme: str, **tls: str) -> BrokerConfig:
        """The configuration of a client."""
        fields = {"ca": str(self.certificate), **tls}
        return BrokerConfig.model_validate({"url": f"{scheme}://127.0.0.1:{self.port}", "tls": fields})


@asynccontextmanager
async def listener(folder: Path, greeting: bytes = b"") -> AsyncIterator[Listener]:
    made = Listener(make_certificate(folder / "tls", NAME), greeting)
    server = await asyncio.start_server(made.accept, "127.0.0.1", 0, ssl=None if greeting else made.context)
    made.port = server.sockets[0].getsockname()[1]
    try:
        yield made
    finally:
        server.close()
        await made.ended()


@pytest.mark.parametrize("scheme", ["amqp", "kafka", "mqtt", "nats", "redis"])
async def test_a_client_checks_the_certificate_for_the_name_of_the_configuration(scheme: str, tmp_path: Path) -> None:
    async with listener(tmp_path, INFO if scheme == "nats" else b"") as server:
        client = make(server.config(scheme, server_name=NAME))
        opening = asyncio.create_task(client.open())
        async with asyncio.timeout(300):
            assert await server.began
        if scheme != "nats":  # no other broker answers
            opening.cancel()
        with suppress(asyncio.CancelledError, BrokerUnavailable):
            await opening
        await client.aclose()
        async with asyncio.timeout(300):  # a thread that connects goes on after its call, and closes its socket then
            await asyncio.gather(*asyncio.all_tasks() - {asyncio.current_task()}, return_exceptions=True)
        assert set(server.names) == {NAME}


@pytest.mark.parametrize("tls", [{}, {"server_name": "another.internal"}])
async def test_a_certificate_of_another_name_is_refused(tls: dict[str, str], tmp_path: Path) -> None:
    async with listener(tmp_path) as server:
        with pytest.raises(ssl.SSLCertVerificationError):
            await asyncio.open_connection("127.0.0.1", server.port, ssl=tls_of(server.config("kafka", **tls)))
        assert not server.began.done()
