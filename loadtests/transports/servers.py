"""An echo server: `python -m loadtests.transports.servers NAME` prints its port."""

import asyncio
import sys
from collections.abc import Awaitable, Callable
from typing import Any

import uvloop

JSON = "application/json"
HOST = "127.0.0.1"
PATH = "/bench.Echo/Echo"


async def http1() -> int:
    """Ours."""
    from adapters.http1.message import Request, Response
    from adapters.http1.server import Server

    async def echo(http: Request) -> Response:
        return Response(200, [("content-type", JSON)], await http.read())

    return (await Server(echo).listen_tcp(HOST, 0))[1]


async def aiohttp() -> int:
    """aiohttp, without its access log."""
    from aiohttp import web

    async def echo(http: web.Request) -> web.Response:
        return web.Response(body=await http.read(), content_type=JSON)

    app = web.Application()
    app.router.add_post("/echo", echo)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, HOST, 0).start()
    return int(runner.addresses[0][1])


async def grpc() -> int:
    """Ours."""
    from adapters.http2.accepted import Server
    from adapters.http2.call import GrpcCall

    async def echo(call: GrpcCall) -> None:
        call.reply(await call.read() or b"")

    return (await Server(echo).listen_tcp(HOST, 0))[1]


async def grpc_aio() -> int:
    """grpc.aio, with messages as bytes as ours has them."""
    import grpc

    async def echo(message: bytes, context: Any) -> bytes:
        return message

    server = grpc.aio.server()
    method = grpc.unary_unary_rpc_method_handler(echo)
    service, name = PATH.strip("/").split("/")
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, {name: method}),))
    port = int(server.add_insecure_port(f"{HOST}:0"))
    await server.start()
    RUNNING.append(server)
    return port


RUNNING: list[Any] = []
"""grpc.aio stops a server that nothing refers to."""
SERVERS: dict[str, Callable[[], Awaitable[int]]] = {
    "http1": http1,
    "aiohttp": aiohttp,
    "grpc": grpc,
    "grpc.aio": grpc_aio,
}


async def serve(name: str) -> None:
    """Serve until standard input ends."""
    print(await SERVERS[name](), flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


if __name__ == "__main__":
    uvloop.run(serve(sys.argv[1]))
