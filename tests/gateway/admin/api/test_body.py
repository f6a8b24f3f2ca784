"""Bodies of the admin API: what all of them hold at once is bounded, and released however each request ends."""

import asyncio
import random
from urllib.parse import urlsplit

import pytest

from adapters.http1.budget import COPIES, Budget
from gateway.admin.api import body
from tests.gateway.admin.conftest import AdminDoor, OpenDoor

pytestmark = pytest.mark.realtime  # the database has threads

LOAD = "/v2/repository/models/chat/load"
Sent = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@pytest.fixture
def budget(monkeypatch: pytest.MonkeyPatch) -> Budget:
    """The budget of the next door."""
    made = Budget(0)
    monkeypatch.setattr(body, "Budget", lambda limit: _limited(made, limit))
    return made


def _limited(budget: Budget, limit: int) -> Budget:
    budget.limit = limit
    return budget


async def send(door: AdminDoor, length: int | None, part: bytes = b"{") -> Sent:
    """A load whose body has not arrived whole; `length` is None for a chunked body."""
    url = urlsplit(door.url)
    reader, writer = await asyncio.open_connection(url.hostname, url.port)
    framing = "transfer-encoding: chunked" if length is None else f"content-length: {length}"
    head = f"POST {LOAD} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n{framing}\r\n\r\n"
    writer.write(head.encode() + (b"%x\r\n%b\r\n" % (len(part), part) if length is None else part))
    return reader, writer


async def until(budget: Budget, held: int) -> None:
    async with asyncio.timeout(300):
        while budget.held != held:
            await asyncio.sleep(0.005)


@pytest.mark.parametrize("announced", [True, False])
async def test_a_second_large_body_is_refused_until_the_first_has_ended(
    admin_door: OpenDoor, budget: Budget, announced: bool
) -> None:
    async with admin_door() as door:
        largest = door.backend.config.http.max_body
        _, first = await send(door, largest if announced else None)
        await until(budget, COPIES * largest)
        reader, second = await send(door, largest)
        assert (await reader.readline()).startswith(b"HTTP/1.1 503 ")
        assert (await door.send("POST", LOAD, body={"parameters": {}}))[0] == 200
        first.transport.abort()
        second.transport.abort()
        await until(budget, 0)
        assert (await door.send("POST", LOAD, body=b"x" * 1024**2))[0] == 200


@pytest.mark.parametrize("seed", range(3))
async def test_no_mix_of_bodies_exceeds_or_leaks_the_budget(admin_door: OpenDoor, budget: Budget, seed: int) -> None:
    dice = random.Random(seed)
    async with admin_door() as door:
        largest = door.backend.config.http.max_body

        async def one() -> None:
            length = dice.choice([None, 2, 20_000, largest // 3, largest, largest + 1])
            _, writer = await send(door, length)
            await asyncio.sleep(dice.uniform(0, 0.01))
            writer.transport.abort()

        await asyncio.gather(*(one() for _ in range(40)))
        await until(budget, 0)
        assert 0 < budget.most <= budget.limit
        assert (await door.send("POST", LOAD, body={}))[0] == 200
