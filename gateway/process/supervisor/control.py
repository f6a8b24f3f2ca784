"""The private Unix socket on which a worker serves its supervisor."""

import os
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
from aiohttp import web

from adapters.types import Order
from gateway.auth.keys import Principal
from gateway.process.admin_backend import PlaneBackend
from gateway.process.supervisor.messages import CountOrder, RolloutExchange, WorkerSettings, decode, encode
from gateway.process.supervisor.worker import Worker
from gateway.telemetry import families
from gateway.traffic.fleet.member import FleetError
from gateway.traffic.fleet.operations import NotDone, Operation, adopt, pack
from gateway.traffic.standing import ScalingExchange

MAX_BODY = 64 * 1024**2
LAST_SECONDS = 1.0
"""Time for calls in progress when the worker stops: a drain that a second signal ends still waits for requests."""


class ControlSocket:
    """`open`, then `aclose`. Only this user can connect to the socket."""

    def __init__(self, worker: Worker) -> None:
        app = web.Application(client_max_size=MAX_BODY)
        backend = PlaneBackend(worker.plane)
        app.add_routes([*_reports(backend), *_operations(worker, backend), *_commands(worker)])
        self._runner = web.AppRunner(app, access_log=None, handle_signals=False, shutdown_timeout=LAST_SECONDS)

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


def _reports(backend: PlaneBackend) -> list[web.RouteDef]:
    """The reports of a worker."""

    def answering(report: Callable[[], Awaitable[Any]]) -> Callable[[web.Request], Awaitable[web.Response]]:
        async def handler(_: web.Request) -> web.Response:
            return web.Response(body=msgspec.json.encode(await report()))

        return handler

    async def alive(_: web.Request) -> web.Response:
        return web.Response()

    async def readiness() -> dict[str, Any]:
        return (await backend.readiness())[1]

    async def metrics(_: web.Request) -> web.Response:
        return web.Response(body=families.encode(await backend.metrics()))

    return [
        web.get("/alive", alive),
        web.get("/readiness", answering(readiness)),
        web.get("/metrics", metrics),
        web.get("/state", answering(backend.state)),
        web.get("/load", answering(backend.load)),
        web.get("/minutes", answering(backend.minutes)),
        web.get("/pools", answering(backend.pools)),
    ]


def _operations(worker: Worker, backend: PlaneBackend) -> list[web.RouteDef]:
    """Changes to pools by operators: one worker applies a change, the others adopt its overrides."""

    async def operate(request: web.Request) -> web.Response:
        try:
            done = await backend.operate(decode(await request.read(), Operation))
        except NotDone as error:
            return _not_done(error)
        return web.Response(body=msgspec.json.encode(done))

    async def count(request: web.Request) -> web.Response:
        order = decode(await request.read(), CountOrder)
        try:
            await backend.count(Principal(order.tenant, order.key, team=order.team), order.size)
        except NotDone as error:
            return _not_done(error)
        return web.Response()

    async def order(request: web.Request) -> web.Response:
        kind: Order = "load" if request.match_info["order"] == "load" else "unload"
        try:
            await backend.order(request.query["model"], kind, await request.read())
        except NotDone as error:
            return _not_done(error)
        return web.Response()

    async def get_overrides(_: web.Request) -> web.Response:
        return web.Response(body=pack(worker.plane.fleet))

    async def put_overrides(request: web.Request) -> web.Response:
        adopt(worker.plane.fleet, await request.read())
        return web.Response()

    return [
        web.post("/operate", operate),
        web.post("/count", count),
        web.post("/order/{order:load|unload}", order),
        web.get("/overrides", get_overrides),
        web.put("/overrides", put_overrides),
    ]


def _not_done(error: NotDone) -> web.Response:
    return web.json_response({"code": error.code, "message": str(error)}, status=error.status)


def _commands(worker: Worker) -> list[web.RouteDef]:
    """The commands that a worker executes."""

    async def accept(request: web.Request) -> web.Response:
        worker.accept(msgspec.json.decode(await request.read(), type=list[int]))
        return web.Response()

    async def release_sockets(_: web.Request) -> web.Response:
        worker.release_sockets()
        return web.Response()

    async def prepare(request: web.Request) -> web.Response:
        try:
            await worker.prepare(decode(await request.read(), WorkerSettings))
        except (FleetError, ValueError) as error:
            return web.Response(status=409, text=str(error))
        return web.Response()

    async def commit(_: web.Request) -> web.Response:
        worker.commit()
        return web.Response()

    async def abandon(_: web.Request) -> web.Response:
        worker.abandon()
        return web.Response()

    async def rollouts(request: web.Request) -> web.Response:
        exchanged = worker.exchange(decode(await request.read(), RolloutExchange))
        return web.Response(body=encode(exchanged))

    async def scaling(request: web.Request) -> web.Response:
        exchanged = worker.exchange_demand(decode(await request.read(), ScalingExchange))
        return web.Response(body=encode(exchanged))

    async def runtimes(_: web.Request) -> web.Response:
        return web.json_response(worker.runtimes_in_use())

    async def drain(_: web.Request) -> web.Response:
        """Responds at the end of the drain, with the final metrics."""
        await worker.drain()
        return web.Response(body=families.encode(await PlaneBackend(worker.plane).metrics()))

    return [
        web.put("/accept", accept),
        web.post("/release-sockets", release_sockets),
        web.post("/prepare", prepare),
        web.post("/commit", commit),
        web.post("/abandon", abandon),
        web.post("/rollouts", rollouts),
        web.post("/scaling", scaling),
        web.get("/runtimes", runtimes),
        web.post("/drain", drain),
    ]
