"""Two workers in one process, with real inboxes."""

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import closing

import pytest
import pytest_asyncio

from config.schema.listen import ListenerKind
from gateway.process.supervisor.handover import Handover, Pair, inbox
from gateway.process.supervisor.loads import LoadTable
from tests.support.waiting import until


class Worker:
    """Holds the connections that it serves."""

    def __init__(self, slot: int, inboxes: list[Pair], table: LoadTable) -> None:
        self.served: list[tuple[ListenerKind, socket.socket]] = []
        self.handover = Handover(inboxes, slot, slot, table, self._serve)
        self.http, self.grpc = self.handover.member("http"), self.handover.member("grpc")

    def _serve(self, kind: ListenerKind, accepted: socket.socket) -> None:
        self.served.append((kind, accepted))
        self.handover.member(kind).hold(sum(each == kind for each, _ in self.served))

    def accept(self) -> socket.socket:
        """Accept a connection, and return its client."""
        client, accepted = socket.socketpair()
        if not self.http.give(accepted):
            self._serve("http", accepted)
        return client

    def stall(self) -> None:
        """Take nothing from the inbox."""
        asyncio.get_running_loop().remove_reader(self.handover._inbox(self.handover._slot))


@pytest.fixture
def inboxes() -> Iterator[list[Pair]]:
    made = [inbox(), inbox()]
    yield made
    for pair in made:
        for end in pair:
            end.close()


@pytest_asyncio.fixture
async def pair(inboxes: list[Pair]) -> AsyncIterator[list[Worker]]:
    with closing(LoadTable.create(2)) as table:
        made = [Worker(slot, inboxes, table) for slot in range(2)]
        yield made
        for worker in made:
            worker.handover.close()
            for _, accepted in worker.served:
                accepted.close()


def close(clients: list[socket.socket]) -> None:
    for client in clients:
        client.close()


async def test_each_has_half_of_the_connections_that_reach_the_other(pair: list[Worker]) -> None:
    first, second = pair
    clients = [first.accept() for _ in range(100)]  # in one turn of the loop: none has arrived at the other
    await until(lambda: len(first.served) + len(second.served) == 100)
    assert abs(len(first.served) - len(second.served)) <= 1
    assert {kind for kind, _ in second.served} == {"http"}
    clients[1].send(b"hello")
    ends = [accepted for worker in pair for _, accepted in worker.served]
    assert sum(map(_reads, ends)) == 1
    close(clients)


def _reads(end: socket.socket) -> bool:
    end.setblocking(False)
    try:
        return end.recv(10) == b"hello"
    except BlockingIOError:
        return False


async def test_connections_that_a_stalled_worker_does_not_take_come_back(pair: list[Worker]) -> None:
    first, second = pair
    second.stall()
    clients = [first.accept() for _ in range(10)]
    assert len(first.served) < 10
    await until(lambda: len(first.served) == 10)
    clients.append(first.accept())
    assert len(first.served) == 11  # it gives that worker no more
    assert second.served == []
    close(clients)


async def test_a_worker_that_leaves_serves_its_inbox_and_the_connections_that_it_gave(pair: list[Worker]) -> None:
    first, second = pair
    second.stall()
    clients = [first.accept() for _ in range(10)]
    first.handover.close()
    assert len(first.served) == 10
    clients.append(first.accept())
    assert len(first.served) == 11
    clients += [second.accept() for _ in range(5)]
    assert len(second.served) == 5  # the other one has left
    close(clients)


async def test_a_worker_that_ends_leaves_nothing_in_its_inbox(pair: list[Worker]) -> None:
    first, second = pair
    second.stall()
    clients = [first.accept() for _ in range(3)]
    first.handover._table.clear(1)
    await until(lambda: len(first.served) == 3)
    close(clients)
