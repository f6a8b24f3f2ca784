"""The admin listener over raw sockets: connections without a request end, and never keep operators out."""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from aiohttp import web

import gateway.admin.front  # noqa: F401 - the import of a thread would race with the virtual clock
from gateway.admin.listener import AdminLimits, AdminListener
from tests.adapters.http1.raw import PATIENCE, Raw, get, post, until

HALF = b"GET /livez HTTP/1.1\r\nHost: x\r\n"


@pytest.fixture(autouse=True)
def frequent_sweeps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("adapters.http1.sweeper.INTERVAL", 0.01)
    monkeypatch.setattr("adapters.http1.sweeper.CALM", 0.01)


async def answered(client: Raw, text: bytes) -> bool:
    """Whether a whole response with this body comes."""
    async with asyncio.timeout(PATIENCE):
        return (await client.reader.readuntil(b"\r\n\r\n" + text)).startswith(b"HTTP/1.1 200 ")


class StubApp:
    """An application that answers, or waits at its gate."""

    def __init__(self) -> None:
        self.gate = asyncio.Event()
        self.app = web.Application()
        self.app.router.add_get("/livez", self.alive)
        self.app.router.add_route("*", "/slow", self.slow)

    async def alive(self, _: web.Request) -> web.Response:
        return web.Response(text="alive")

    async def slow(self, request: web.Request) -> web.Response:
        await request.read()
        await self.gate.wait()
        return web.Response(text="slow")


class Listening:
    def __init__(self, listener: AdminListener, backend: StubApp, port: int) -> None:
        self.listener = listener
        self.backend = backend
        self.port = port
        self.clients: list[Raw] = []

    async def connect(self, sent: bytes = b"") -> Raw:
        client = Raw(*await asyncio.open_connection("127.0.0.1", self.port))
        client.send(sent)
        self.clients.append(client)
        return client

    async def alive(self) -> bool:
        client = await self.connect(get("/livez"))
        return await answered(client, b"alive")


@asynccontextmanager
async def listening(limits: AdminLimits) -> AsyncIterator[Listening]:
    backend = StubApp()
    listener = AdminListener(lambda: backend.app, limits)
    _, port = await listener.listen_tcp("127.0.0.1", 0)
    served = Listening(listener, backend, port)
    try:
        yield served
    finally:
        for client in served.clients:
            client.close()
        await listener.aclose()
        await until(lambda: not listener.connections)


async def test_incomplete_requests_time_out_and_the_listener_still_answers() -> None:
    async with listening(AdminLimits(head_timeout=0.5, max_connections=100)) as served:
        halves = [await served.connect(HALF) for _ in range(300)]
        assert len(served.listener.connections) <= served.listener.limits.max_connections + 1
        assert await served.alive()
        assert set(await asyncio.gather(*[half.rest() for half in halves])) == {b""}
        assert await served.alive()


@pytest.mark.parametrize("sent", [b"", HALF, get("/livez") + HALF], ids=["nothing", "half", "half behind a whole"])
async def test_a_connection_without_a_request_ends(sent: bytes) -> None:
    async with listening(AdminLimits(head_timeout=0.1, idle_timeout=0.2)) as served:
        client = await served.connect(sent)
        if sent.startswith(get("/livez")):
            assert await answered(client, b"alive")
        assert await client.rest() == b""


async def test_a_byte_now_and_then_does_not_extend_the_head() -> None:
    async with listening(AdminLimits(head_timeout=0.2)) as served:
        client = await served.connect()

        async def drip() -> None:
            for byte in HALF * 10:
                client.send(bytes([byte]))
                await asyncio.sleep(0.02)

        dripping = asyncio.create_task(drip())
        assert await client.rest() == b""
        assert not dripping.done()
        dripping.cancel()


async def test_a_request_under_way_has_no_deadline_of_its_head() -> None:
    async with listening(AdminLimits(head_timeout=0.05)) as served:
        client = await served.connect(get("/slow"))
        await asyncio.sleep(0.3)
        served.backend.gate.set()
        assert await answered(client, b"slow")


async def test_where_all_have_requests_under_way_a_new_connection_is_dropped() -> None:
    async with listening(AdminLimits(max_connections=3)) as served:
        busy = [await served.connect(get("/slow")) for _ in range(3)]
        await until(lambda: [c.spare for c in served.listener.connections] == [False] * 3)
        assert await (await served.connect(get("/livez"))).rest() == b""
        served.backend.gate.set()
        for client in busy:
            assert await answered(client, b"slow")
            client.close()
        await until(lambda: len(served.listener.connections) < 3)
        assert await served.alive()


@pytest.mark.parametrize("seed", range(2))
async def test_clients_of_all_kinds_never_keep_an_operator_out(seed: int) -> None:
    """Some send nothing, halves, noise, whole requests; some leave. An operator is answered after each."""
    dice = random.Random(seed)
    kinds = (b"", HALF, b"\0\xff" * 10, get("/livez"), post("Content-Length: 9", body=b"abc"), get("/livez") + HALF)
    async with listening(AdminLimits(head_timeout=0.2, idle_timeout=0.3, max_connections=60)) as served:
        for _ in range(100):
            client = await served.connect(dice.choice(kinds))
            if dice.random() < 0.3:
                client.close()
            assert await served.alive()
            assert len(served.listener.connections) <= 61


@pytest.mark.parametrize("sent", [get("/livez"), get("/none"), b"GET / HTTP/1.1\r\n:\r\n\r\n", b"nonsense\r\n\r\n"])
async def test_no_response_names_a_version_of_the_software(sent: bytes) -> None:
    async with listening(AdminLimits(idle_timeout=0.5, head_timeout=0.5)) as served:
        head = (await (await served.connect(sent)).rest()).lower()
        assert head.startswith(b"http/1.")
        assert b"python" not in head
        assert b"aiohttp" not in head


async def test_the_application_is_made_for_the_first_client_and_again_after_a_failure() -> None:
    stub, makings = StubApp(), list[int]()

    def make() -> web.Application:
        makings.append(len(makings))
        if len(makings) == 1:
            raise OSError("cannot be made now")
        return stub.app

    listener = AdminListener(make, AdminLimits(head_timeout=5.0))
    _, port = await listener.listen_tcp("127.0.0.1", 0)
    served = Listening(listener, stub, port)
    try:
        assert not listener.is_made
        refused = await served.connect(get("/livez"))
        with pytest.raises(ConnectionError):
            async with asyncio.timeout(PATIENCE):
                await refused.reader.read()
        assert all(await asyncio.gather(served.alive(), served.alive()))
        assert len(makings) == 2
    finally:
        for client in served.clients:
            client.close()
        await listener.aclose()


async def test_a_request_before_the_application_is_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    """uvloop starts to read after `connection_made`, even if that has paused it."""
    monkeypatch.setattr("asyncio.selector_events._SelectorSocketTransport.pause_reading", lambda _: None)
    stub = StubApp()
    listener = AdminListener(lambda: stub.app)
    _, port = await listener.listen_tcp("127.0.0.1", 0)
    served = Listening(listener, stub, port)
    try:
        assert await served.alive()
    finally:
        for client in served.clients:
            client.close()
        await listener.aclose()
