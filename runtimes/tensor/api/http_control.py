"""The Open Inference Protocol over HTTP: everything beside inference."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from adapters import offload
from adapters.errors import CallerError, Unavailable
from adapters.http1.message import Request, Response
from adapters.wire.oip import bodies as oip_bodies
from runtimes.tensor.api.control import Control, no_cuda
from runtimes.tensor.api.metrics import CONTENT_TYPE as METRICS_TYPE
from runtimes.tensor.api.metrics import Metrics
from runtimes.tensor.api.refusals import JSON
from runtimes.tensor.api.routes import PathMatch
from runtimes.tensor.configuration.triton import to_json

Answer = Callable[[Request, PathMatch], Awaitable[Response]]
T = TypeVar("T")


class HttpControl:
    """The handlers of operations."""

    def __init__(self, control: Control, metrics: Metrics) -> None:
        self._control = control
        self._metrics = metrics
        self.answers: dict[str, Answer] = {
            "live": self._live,
            "ready": self._ready,
            "model_ready": self._model_ready,
            "server_metadata": self._server_metadata,
            "model_metadata": self._model_metadata,
            "config": self._config,
            "statistics": self._statistics,
            "index": self._index,
            "load": self._load,
            "unload": self._unload,
            "retain": self._retain,
            "regions": self._regions,
            "register": self._register,
            "unregister": self._unregister,
            "cuda_regions": self._cuda_regions,
            "cuda_region": self._cuda_region,
            "trace": self._trace,
            "logging": self._logging,
            "metrics": self._scrape,
        }

    # ── about the server and its models ───────────────────────────────────────────────────────────────

    async def _live(self, request: Request, route: PathMatch) -> Response:
        return Response(200, [JSON])

    async def _ready(self, request: Request, route: PathMatch) -> Response:
        if not self._control.ready:
            raise Unavailable("The server is not ready.", retry_after=1.0)
        return Response(200, [JSON])

    async def _model_ready(self, request: Request, route: PathMatch) -> Response:
        if not self._control.model_ready(route.about, route.version):
            raise Unavailable(f"The model `{route.about}` is not ready.", retry_after=1.0)
        return Response(200, [JSON])

    async def _server_metadata(self, request: Request, route: PathMatch) -> Response:
        return _json(self._control.server())

    async def _model_metadata(self, request: Request, route: PathMatch) -> Response:
        return _json(self._control.model(route.about, route.version))

    async def _config(self, request: Request, route: PathMatch) -> Response:
        return _json(to_json(self._control.config(route.about, route.version)))

    async def _statistics(self, request: Request, route: PathMatch) -> Response:
        return _json({"model_stats": self._control.statistics(route.about, route.version)})

    async def _scrape(self, request: Request, route: PathMatch) -> Response:
        return Response(200, [("content-type", METRICS_TYPE)], self._metrics.text())

    # ── the repository ────────────────────────────────────────────────────────────────────────────────

    async def _index(self, request: Request, route: PathMatch) -> Response:
        ready = await _decoded(oip_bodies.decode_index_request, await request.read())
        return _json(await self._control.index(ready=ready))

    async def _load(self, request: Request, route: PathMatch) -> Response:
        await self._control.load(route.about, await _decoded(oip_bodies.decode_load, await request.read()))
        return Response(200, [JSON])

    async def _unload(self, request: Request, route: PathMatch) -> Response:
        with_dependents = await _decoded(oip_bodies.decode_unload, await request.read())
        await self._control.unload(route.about, with_dependents=with_dependents)
        return Response(200, [JSON])

    async def _retain(self, request: Request, route: PathMatch) -> Response:
        seconds = await _decoded(oip_bodies.decode_retention, await request.read())
        self._control.retain(route.about, route.version, seconds)
        return Response(200, [JSON])

    # ── shared memory ─────────────────────────────────────────────────────────────────────────────────

    async def _regions(self, request: Request, route: PathMatch) -> Response:
        regions = self._control.memory.regions(route.about)
        return _json([{"name": r.name, "key": r.key, "offset": r.offset, "byte_size": r.byte_size} for r in regions])

    async def _register(self, request: Request, route: PathMatch) -> Response:
        report = await _decoded(oip_bodies.decode_object, await request.read())
        key, offset, size = report.get("key"), report.get("offset", 0), report.get("byte_size")
        if not isinstance(key, str) or type(offset) is not int or type(size) is not int:
            raise CallerError("A region is registered with its `key`, its `byte_size` and, if not 0, its `offset`.")
        self._control.memory.register(route.about, key, offset, size)
        return Response(200, [JSON])

    async def _unregister(self, request: Request, route: PathMatch) -> Response:
        self._control.memory.unregister(route.about)
        return Response(200, [JSON])

    async def _cuda_regions(self, request: Request, route: PathMatch) -> Response:
        return _json([])

    async def _cuda_region(self, request: Request, route: PathMatch) -> Response:
        if request.target.endswith(b"/unregister"):
            return Response(200, [JSON])  # nothing is registered
        return no_cuda()

    # ── settings ──────────────────────────────────────────────────────────────────────────────────────

    async def _trace(self, request: Request, route: PathMatch) -> Response:
        tracer = self._control.tracer
        if route.about:
            self._control.config(route.about)
        if request.method == "POST":
            return _json(tracer.update(await _decoded(oip_bodies.decode_object, await request.read()), route.about))
        return _json(tracer.settings.report(route.about))

    async def _logging(self, request: Request, route: PathMatch) -> Response:
        logs = self._control.logs
        if request.method == "POST":
            return _json(logs.update(await _decoded(oip_bodies.decode_object, await request.read())))
        return _json(logs.report())


async def _decoded(decode: Callable[[bytes], T], body: bytes) -> T:
    return await offload.run(len(body), decode, body)


def _json(value: Any) -> Response:
    return Response(200, [JSON], oip_bodies.encode(value))
