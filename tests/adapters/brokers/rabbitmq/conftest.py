"""A real server with TLS and a small limit of messages, which the tests of a file share."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
import pytest_asyncio

from tests.support.brokers.broker import free_port
from tests.support.brokers.rabbitmq import RabbitBroker, RabbitServer, rabbitmq_server
from tests.support.tls import make_certificate

LARGEST = 100_000
"""Bytes of the largest message."""


class TlsServer(NamedTuple):
    """A server, the port of its listener with TLS, and its certificate."""

    server: RabbitServer
    port: int
    certificate: Path


@pytest.fixture(scope="module")
def tls_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TlsServer]:
    folder = tmp_path_factory.mktemp("rabbitmq")
    made, port = make_certificate(folder / "tls"), free_port()
    settings = f"""\
max_message_size = {LARGEST}
listeners.ssl.1 = 127.0.0.1:{port}
ssl_options.cacertfile = {made}/cert.pem
ssl_options.certfile = {made}/cert.pem
ssl_options.keyfile = {made}/key.pem
"""
    with rabbitmq_server(folder, settings) as server:
        yield TlsServer(server, port, made / "cert.pem")


@pytest_asyncio.fixture
async def broker(tls_server: TlsServer, tmp_path: Path) -> AsyncIterator[RabbitBroker]:
    """A virtual host without queues."""
    made = RabbitBroker(tmp_path, tls_server.server)
    await made.start()
    yield made
    await made.disconnect()
