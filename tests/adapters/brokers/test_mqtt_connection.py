"""The network connection of the MQTT client: its socket is closed at its end, however it ends."""

import asyncio
import gc
import socket
from collections.abc import Iterator

import pytest

from adapters.brokers.base import BrokerUnavailable
from adapters.brokers.mqtt import connection as connections
from adapters.brokers.mqtt.connection import Connection, ConnectionPlan
from config.schema.bus import BrokerConfig

CONNACK = bytes.fromhex("2003000000")
REFUSED = bytes.fromhex("2003008700")


@pytest.fixture(autouse=True)
def no_collection() -> Iterator[None]:
    """Sockets that only the collector would close stay open."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def connection_to(*servers: socket.socket) -> Connection:
    urls = ",".join(f"127.0.0.1:{each.getsockname()[1]}" for each in servers)
    return Connection(BrokerConfig(url=f"mqtt://{urls}"), ConnectionPlan("x"), lambda _: None)


def close_without_answer(server: socket.socket, answer: bytes) -> None:
    """Accept a connection, answer, and wait until the client has closed it."""
    peer, _ = server.accept()
    with peer:
        peer.sendall(answer)
        peer.settimeout(300)
        while peer.recv(1000):
            pass


@pytest.mark.processes  # the first answer comes after a time
@pytest.mark.parametrize("answer", [b"", REFUSED], ids=["silent", "refuses"])
async def test_a_broker_without_a_welcome_leaves_no_socket(answer: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "CONNECT", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as server:
        peer = asyncio.create_task(asyncio.to_thread(close_without_answer, server, answer))
        with pytest.raises(BrokerUnavailable):
            await connection_to(server).open()
        await peer


async def test_a_cancelled_opening_leaves_no_socket() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        opening = asyncio.create_task(connection_to(server).open())
        peer, _ = await asyncio.to_thread(server.accept)
        opening.cancel()
        with pytest.raises(asyncio.CancelledError):
            await opening
        with peer:
            peer.settimeout(300)
            while await asyncio.to_thread(peer.recv, 1000):
                pass


@pytest.mark.processes  # the first server is silent for a time
async def test_the_next_server_is_opened_after_a_silent_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "CONNECT", 0.2)
    monkeypatch.setattr(connections, "sample", lambda servers, _: servers)
    with socket.create_server(("127.0.0.1", 0)) as silent, socket.create_server(("127.0.0.1", 0)) as server:
        first = asyncio.create_task(asyncio.to_thread(close_without_answer, silent, b""))
        second = asyncio.create_task(asyncio.to_thread(close_without_answer, server, CONNACK))
        connection = connection_to(silent, server)
        assert await connection.open() is False
        await first
        assert not connection.lost.is_set()
        await connection.close()
        await second
