"""A server on a socket that other processes share counts its connections, and may give them away."""

import asyncio
import errno
import socket
from contextlib import closing
from pathlib import Path

import pytest

from adapters.http1 import listeners
from adapters.http1.server import Server
from tests.adapters.http1.raw import PATIENCE, Echo, Raw, get, until
from tests.support.tls import client_side, server_side


class Other:
    """Another process. It takes every connection while it is `hungry`."""

    def __init__(self) -> None:
        self.hungry = False
        self.taken = list[socket.socket]()
        self.arrivals = 0
        self.held = 0
        self.gone = False

    def give(self, accepted: socket.socket) -> bool:
        if self.hungry:
            self.taken.append(accepted)
        return self.hungry

    def arrived(self) -> None:
        self.arrivals += 1

    def hold(self, connections: int) -> None:
        self.held = connections

    def leave(self) -> None:
        self.gone = True


async def answer(port: int) -> int:
    client = Raw(*await asyncio.open_connection("127.0.0.1", port))
    client.send(get("/", "Connection: close"))
    [reply] = await client.replies()
    client.close()
    return reply.status


async def test_a_connection_is_counted_until_its_end_and_one_that_is_given_is_not() -> None:
    with socket.create_server(("127.0.0.1", 0)) as bound:
        server, other, port = Server(Echo()), Other(), bound.getsockname()[1]
        server.listen_socket(bound, siblings=other)
        clients = [Raw(*await asyncio.open_connection("127.0.0.1", port)) for _ in range(3)]
        await until(lambda: other.held == len(server.connections) == 3)
        assert await answer(port) == 200
        await until(lambda: other.held == 3)
        for client in clients:
            client.close()
        await until(lambda: other.held == 0)
        other.hungry = True
        with socket.create_connection(("127.0.0.1", port), PATIENCE):
            await until(lambda: len(other.taken) == 1)
            assert (other.arrivals, other.held, other.gone) == (4, 0, False)
        server.adopt(other.taken.pop())  # as if another process had given it
        await until(lambda: other.arrivals == 5 and other.held == 0)
        assert await server.drain(PATIENCE)
        assert other.gone
        await server.aclose()


async def test_a_failed_handshake_leaves_no_connection_in_the_count(certificate: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as bound:
        server, other, port = Server(Echo()), Other(), bound.getsockname()[1]
        server.listen_socket(bound, server_side(certificate), other)
        for _ in range(3):
            with socket.create_connection(("127.0.0.1", port), PATIENCE) as client:
                client.sendall(b"GET / HTTP/1.1\r\n\r\n")
        await until(lambda: (other.arrivals, other.held) == (3, 0))
        trusted = client_side(certificate)
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=trusted)
        await until(lambda: other.held == len(server.connections) == 1)
        writer.close()
        await until(lambda: other.held == 0)
        await reader.read()
        await server.aclose()


class Exhausted(socket.socket):
    """Fails to accept once, as in a process without a free file descriptor."""

    failures = 1

    def accept(self) -> tuple[socket.socket, object]:
        if Exhausted.failures:
            Exhausted.failures -= 1
            raise OSError(errno.EMFILE, "Too many open files")
        return super().accept()


async def test_connections_wait_while_no_file_descriptor_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listeners, "EXHAUSTED", 0.01)
    monkeypatch.setattr(Exhausted, "failures", 1)
    with socket.create_server(("127.0.0.1", 0)) as plain, closing(Exhausted(fileno=plain.detach())) as bound:
        server = Server(Echo())
        server.listen_socket(bound)
        assert await answer(bound.getsockname()[1]) == 200
        assert Exhausted.failures == 0
        await server.aclose()
