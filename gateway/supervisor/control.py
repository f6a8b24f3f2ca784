"""The private Unix socket on which a worker is asked and told by its supervisor, and by nobody else."""

import os
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import msgspec
from aiohttp import web

from adapters.types import Order
from gateway.admin_backend import GatewayBackend
from gateway.supervisor.orders import Terms, decode
from gateway.traffic.member import FleetError
from gateway.traffic.operations import NotDone, Operation, adopt, pack

if TYPE_CHECKING:
    from gateway.supervisor.worker import Worker

MAX_BODY = 64 * 1024**2


class Control:
    """Opened by `open`; the socket is this user's alone."""

    def __init__(self, worker: "Worker") -> None:
        app = web.Application(client_max_size=MAX_BODY)
        desk = GatewayBackend(worker.gateway)
        app.add_routes([*_asked(desk), *_operated(worker, desk), *_told(worker)])
        self._runner = web.AppRunner(app, access_log=None, handle_signals=False)

    async def open(self, path: str) -> None:
        """Listen."""
        await self._runner.setup()
        mask = os.umask(0o177)
        try:
            await web.UnixSite(self._runner, path).start()
        finally:
            os.umask(mask)

    async def aclose(self) -> None:
        """Stop listening."""
        await self._runner.cleanup()


def _asked(desk: GatewayBackend) -> list[web.RouteDef]:
    """What it tells of itself."""

    def answering(tell: Callable[[], Awaitable[Any]]) -> Callable[[web.Request], Awaitable[web.Response]]:
        async def handler(_: web.Request) -> web.Response:
            return web.Response(body=msgspec.json.encode(await tell()))

        return handler

    async def alive(_: web.Request) -> web.Response:
        return web.Response()

    async def readiness() -> dict[str, Any]:
        return (await desk.readiness())[1]

    async def metrics(_: web.Request) -> web.Response:
        return web.Response(body=await desk.exposition())

    return [
        web.get("/alive", alive),
        web.get("/readiness", answering(readiness)),
        web.get("/metrics", metrics),
        web.get("/state", answering(desk.state)),
        web.get("/pools", answering(desk.pools)),
    ]


def _operated(worker: "Worker", desk: GatewayBackend) -> list[web.RouteDef]:
    """What operators change in its pools: one worker does it, and the others take over what came of it."""

    async def operate(request: web.Request) -> web.Response:
        try:
            done = await desk.operate(decode(await request.read(), Operation))
        except NotDone as error:
            return _not_done(error)
        return web.Response(body=msgspec.json.encode(done))

    async def order(request: web.Request) -> web.Response:
        kind: Order = "load" if request.match_info["order"] == "load" else "unload"
        try:
            await desk.order(request.query["model"], kind, await request.read())
        except NotDone as error:
            return _not_done(error)
        return web.Response()

    async def tell_overrides(_: web.Request) -> web.Response:
        return web.Response(body=pack(worker.gateway.fleet))

    async def take_overrides(request: web.Request) -> web.Response:
        adopt(worker.gateway.fleet, await request.read())
        return web.Response()

    return [
        web.post("/operate", operate),
        web.post("/order/{order:load|unload}", order),
        web.get("/overrides", tell_overrides),
        web.put("/overrides", take_overrides),
    ]


def _not_done(error: NotDone) -> web.Response:
    return web.json_response({"code": error.code, "message": str(error)}, status=error.status)


def _told(worker: "Worker") -> list[web.RouteDef]:
    """What it does when it is told."""

    async def accept(request: web.Request) -> web.Response:
        await worker.accept(msgspec.json.decode(await request.read(), type=list[int]))
        return web.Response()

    async def let_go(_: web.Request) -> web.Response:
        worker.let_go()
        return web.Response()

    async def prepare(request: web.Request) -> web.Response:
        try:
            await worker.prepare(decode(await request.read(), Terms))
        except (FleetError, ValueError) as error:
            return web.Response(status=409, text=str(error))
        return web.Response()

    async def commit(_: web.Request) -> web.Response:
        worker.commit()
        return web.Response()

    async def abandon(_: web.Request) -> web.Response:
        worker.abandon()
        return web.Response()

    async def runtimes(_: web.Request) -> web.Response:
        return web.json_response(worker.runtimes_in_use())

    async def drain(_: web.Request) -> web.Response:
        """Answers when it is over, with the last word on what was counted."""
        await worker.drain()
        return web.Response(body=await GatewayBackend(worker.gateway).exposition())

    return [
        web.put("/accept", accept),
        web.post("/let-go", let_go),
        web.post("/prepare", prepare),
        web.post("/commit", commit),
        web.post("/abandon", abandon),
        web.get("/runtimes", runtimes),
        web.post("/drain", drain),
    ]
