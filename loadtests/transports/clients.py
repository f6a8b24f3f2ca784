"""A client that sends one body again and again: `python -m loadtests.transports.clients NAME PORT COUNT CALLERS`.

Prints the seconds and the CPU seconds that the requests took, as JSON. A tenth of them before are not counted.
"""

import asyncio
import json
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import uvloop

from loadtests.transports.servers import HOST, JSON, PATH

BODY = json.dumps({"model": "chat", "input": "x" * 980}).encode()
PATIENCE = 60.0
Send = Callable[[], Awaitable[bytes]]


@asynccontextmanager
async def http1(port: int) -> AsyncIterator[Send]:
    """Ours."""
    from adapters.http1.client import Client
    from adapters.http1.message import encode_fields
    from adapters.types import Deadline

    client, fields = Client(f"http://{HOST}:{port}"), encode_fields([("content-type", JSON)])

    async def send() -> bytes:
        deadline = Deadline(client.now() + PATIENCE, PATIENCE, PATIENCE)
        response = await client.request(b"POST", b"/echo", fields, BODY, deadline)
        return await response.read()

    yield send
    await client.aclose()


@asynccontextmanager
async def aiohttp(port: int) -> AsyncIterator[Send]:
    """aiohttp."""
    import aiohttp

    url = f"http://{HOST}:{port}/echo"
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(PATIENCE)) as session:

        async def send() -> bytes:
            async with session.post(url, data=BODY, headers={"content-type": JSON}) as response:
                return await response.read()

        yield send


@asynccontextmanager
async def httpx(port: int) -> AsyncIterator[Send]:
    """httpx."""
    import httpx

    async with httpx.AsyncClient(timeout=PATIENCE) as client:

        async def send() -> bytes:
            response = await client.post(f"http://{HOST}:{port}/echo", content=BODY, headers={"content-type": JSON})
            return response.content

        yield send


@asynccontextmanager
async def grpc(port: int) -> AsyncIterator[Send]:
    """Ours."""
    from adapters.http2.channel import Channel
    from adapters.types import Deadline

    channel, path = Channel(f"http://{HOST}:{port}"), PATH.encode()

    async def send() -> bytes:
        return await channel.unary(path, BODY, b"", Deadline(channel.now() + PATIENCE, PATIENCE, PATIENCE))

    yield send
    await channel.aclose()


@asynccontextmanager
async def grpc_aio(port: int) -> AsyncIterator[Send]:
    """grpc.aio."""
    import grpc

    async with grpc.aio.insecure_channel(f"{HOST}:{port}") as channel:
        call = channel.unary_unary(PATH)

        async def send() -> bytes:
            return bytes(await call(BODY, timeout=PATIENCE))

        yield send


CLIENTS = {"http1": http1, "aiohttp": aiohttp, "httpx": httpx, "grpc": grpc, "grpc.aio": grpc_aio}


async def measure(name: str, port: int, count: int, callers: int) -> dict[str, float]:
    """The wall and CPU seconds of `count` requests, `callers` at a time."""

    async def caller(requests: int) -> None:
        for _ in range(requests):
            assert await send() == BODY

    async with CLIENTS[name](port) as send:
        await asyncio.gather(*(caller(max(1, count // callers // 10)) for _ in range(callers)))
        print("warm", flush=True)
        sys.stdin.readline()
        began, cpu = time.perf_counter(), time.process_time()
        await asyncio.gather(*(caller(count // callers) for _ in range(callers)))
        return {"seconds": time.perf_counter() - began, "cpu": time.process_time() - cpu}


if __name__ == "__main__":
    _, program, port, count, callers = sys.argv
    print(json.dumps(uvloop.run(measure(program, int(port), int(count), int(callers)))), flush=True)
