"""A client whose server moves to another address."""

import asyncio

import pytest

from adapters.errors import TransportError
from adapters.http1.client import Client, ClientResponse
from adapters.types import Deadline
from tests.adapters.http1.scripted import Peer, scripted


async def send_request(client: Client) -> ClientResponse:
    return await client.request(b"POST", b"/", b"", b"", Deadline(asyncio.get_running_loop().time() + 300, 300, 300))


async def old(peer: Peer) -> None:
    while True:
        await peer.request()
        peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nold")


async def new(peer: Peer) -> None:
    while True:
        await peer.request()
        peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nnew")


async def test_requests_go_to_the_new_address_only() -> None:
    async with scripted(old) as before, scripted(new) as after:
        client = Client(before.url)
        assert await (await send_request(client)).read() == b"old"
        client.move(after.url)
        assert await (await send_request(client)).read() == b"new"
        client.move(before.url)
        assert await (await send_request(client)).read() == b"old"
        await client.aclose()


async def test_a_request_in_progress_fails_as_if_the_server_were_lost() -> None:
    received = asyncio.Event()

    async def mute(peer: Peer) -> None:
        await peer.request()
        received.set()
        await peer.left()

    async with scripted(mute) as before, scripted(new) as after:
        client = Client(before.url)
        request = asyncio.create_task(send_request(client))
        await received.wait()
        client.move(after.url)
        with pytest.raises(TransportError) as raised:
            await request
        assert raised.value.delivered
        assert await (await send_request(client)).read() == b"new"
        assert client.connections == 1
        await client.aclose()


async def test_a_request_without_an_address_is_undelivered() -> None:
    async with scripted(new) as after:
        client = Client("")
        for _ in range(2):
            with pytest.raises(TransportError) as raised:
                await send_request(client)
            assert not raised.value.delivered
        client.move(after.url)
        assert await (await send_request(client)).read() == b"new"
        client.move("")
        with pytest.raises(TransportError) as raised:
            await send_request(client)
        assert not raised.value.delivered
        assert client.connections == 0
        await client.aclose()


async def test_a_connection_to_the_old_address_that_opens_after_the_move_is_not_used() -> None:
    async with scripted(old) as before, scripted(new) as after:
        client = Client(before.url)
        request = asyncio.create_task(send_request(client))
        await asyncio.sleep(0)  # the request connects
        client.move(after.url)
        with pytest.raises(TransportError) as raised:
            await request
        assert not raised.value.delivered
        assert client.connections == 0
        assert await (await send_request(client)).read() == b"new"
        await client.aclose()
