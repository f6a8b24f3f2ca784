"""Pieces of a response that are taken while its caller waits for the next piece."""

import asyncio
from typing import cast

from adapters.http1.exchange import Exchange
from adapters.types import Deadline
from tests.adapters.native.outcomes import Loop, Transport

HEAD = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
IDLE = 5.0


class Clock(Loop):
    """A loop whose time the test sets."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0

    def time(self) -> float:
        return self.now

    def create_future(self) -> asyncio.Future[None]:
        return asyncio.get_running_loop().create_future()


def waiting(loop: Clock, accept: bool, at: float = 100.0) -> tuple[Exchange, list[bytes], asyncio.Future[None]]:
    """An exchange after its head; its caller waits, and takes pieces only if it accepts them."""
    exchange = Exchange(cast(asyncio.AbstractEventLoop, loop), lambda _: None)
    exchange._transport = cast(asyncio.Transport, Transport())
    exchange._begin(Deadline(at, IDLE, IDLE))
    exchange.data_received(HEAD)
    taken: list[bytes] = []

    def forward(piece: bytes) -> bool:
        if accept:
            taken.append(piece)
        return accept

    assert exchange.take() is None
    return exchange, taken, exchange.more(None, forward)


async def test_a_taken_piece_extends_the_wait_up_to_the_deadline() -> None:
    loop = Clock()
    exchange, taken, wait = waiting(loop, accept=True, at=8.0)
    assert exchange.deadline == IDLE
    for loop.now, deadline in ((2.0, 7.0), (4.0, 8.0)):
        exchange.data_received(b"1\r\na\r\n")
        assert exchange.deadline == deadline
    assert taken == [b"a", b"a"]
    assert not wait.done()


async def test_a_piece_that_is_not_taken_ends_the_wait() -> None:
    exchange, taken, wait = waiting(Clock(), accept=False)
    exchange.data_received(b"1\r\na\r\n")
    exchange.data_received(b"1\r\nb\r\n")
    assert wait.done()
    assert taken == []
    assert exchange.take() == b"ab", "in order, and nothing is offered twice"


async def test_the_end_of_a_response_ends_the_wait() -> None:
    for last in (b"1\r\na\r\n0\r\n\r\n", b"1\r\na\r\n0;x=y\r\n\r\n"):  # parsed by the core, and by llhttp
        exchange, taken, wait = waiting(Clock(), accept=True)
        exchange.data_received(last)
        assert taken == [b"a"]
        assert wait.done()
        assert exchange.take() == b""


async def test_a_loss_ends_the_wait() -> None:
    exchange, _, wait = waiting(Clock(), accept=True)
    exchange.connection_lost(ConnectionResetError())
    assert wait.done()
