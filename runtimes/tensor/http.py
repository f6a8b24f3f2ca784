"""The Open Inference Protocol over HTTP, with Triton's extensions: paths, bodies, statuses."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from typing import Any

from adapters.errors import CallerError, InferenceError, Unavailable
from adapters.http1.message import Request, Response
from adapters.tensors import Inference
from adapters.types import DEVICE_MS
from adapters.wire import compression, oip, oip_answers, oip_bodies, oip_generate, oip_raw
from runtimes.tensor import events, routes
from runtimes.tensor.control import Control, no_cuda
from runtimes.tensor.metrics import CONTENT_TYPE as METRICS_TYPE
from runtimes.tensor.metrics import Metrics
from runtimes.tensor.refusals import JSON, http_response
from runtimes.tensor.restrictions import Restrictions
from runtimes.tensor.routes import Route
from runtimes.tensor.service import Computed, InferenceService
from runtimes.tensor.triton_writing import to_json

MAX_BODY = 64 << 20
"""Bytes; of a compressed one, also of what it becomes."""
IN_A_THREAD = 256 << 10
"""Bytes, from where on compressing would hold up everybody else."""
_LENGTH = oip.HEADER.encode()
_BINARY = ("content-type", "application/octet-stream")


class HttpDoor:
    """The handler of `adapters.http1`."""

    def __init__(
        self, service: InferenceService, control: Control, metrics: Metrics, restrictions: Restrictions, max_body: int
    ) -> None:
        self._service = service
        self._control = control
        self._metrics = metrics
        self._restrictions = restrictions
        self._max_body = max_body
        self._answers: dict[str, Callable[[Request, Route], Awaitable[Response]]] = {
            "infer": self._infer,
            "generate": self._generate,
            "generate_stream": self._generate_stream,
            "infer_stream": self._infer_stream,
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
            "regions": self._regions,
            "register": self._register,
            "unregister": self._unregister,
            "cuda_regions": self._cuda_regions,
            "cuda_region": self._cuda_region,
            "trace": self._trace,
            "logging": self._logging,
            "metrics": self._scrape,
        }

    async def __call__(self, request: Request) -> Response:
        route = routes.resolve(request.target)
        try:
            if request.method not in route.methods:
                raise _wrong(request, route)
            if self._restrictions:
                self._restrictions.check(route.group, request.headers.get)
            return await self._answers[route.operation](request, route)
        except InferenceError as error:
            return http_response(error)

    # ── inference ─────────────────────────────────────────────────────────────────────────────────────

    async def _infer(self, request: Request, route: Route) -> Response:
        body = await request.read()
        headers = request.headers.raw
        if b"content-encoding" in headers:
            body = await self._decompressed(body, request)
        length = headers.get(_LENGTH)
        size = None if length is None else oip.header_length(length.decode("latin-1"))
        inference = oip.decode_request(body, size, route.about, route.version)
        if size == 0:
            inference = self._complete(inference)
        computed = await self._service.infer(inference)
        body, size = oip_answers.encode_response(computed, oip_answers.wanted(inference))
        device = (DEVICE_MS, f"{computed.device_seconds * 1000:.3f}")
        fields = [JSON, device] if size is None else [_BINARY, (oip.HEADER, str(size)), device]
        if b"accept-encoding" in headers and len(body) >= compression.SMALLEST:
            body = await _compressed(body, request, fields)
        return Response(200, fields, body)

    def _complete(self, inference: Inference) -> Inference:
        """A raw request is one input, of which the model knows the rest."""
        config = self._control.config(inference.model_name, inference.model_version)
        if len(config.inputs) != 1:
            raise CallerError(
                f"A raw request is for models with one input, and `{config.name}` has {len(config.inputs)}."
            )
        spec = config.inputs[0]
        return oip_raw.complete(inference, spec.name, spec.datatype, spec.dims, batched=config.max_batch_size > 0)

    async def _infer_stream(self, request: Request, route: Route) -> Response:
        inference = oip.decode_request(await self._read(request), None, route.about, route.version)
        return await events.answer(self._service.stream(inference), _encode_event)

    async def _generate(self, request: Request, route: Route) -> Response:
        inference = await self._asked_to_generate(request, route)
        only: Computed | None = None
        async with aclosing(self._service.stream(inference)) as responses:
            async for computed in responses:
                if only is not None:
                    raise _not_one("several", inference.model_name)
                only = computed
        if only is None:
            raise _not_one("no", inference.model_name)
        return Response(200, [JSON], oip_generate.encode_generate(only))

    async def _generate_stream(self, request: Request, route: Route) -> Response:
        inference = await self._asked_to_generate(request, route)
        return await events.answer(self._service.stream(inference), oip_generate.encode_generate)

    async def _asked_to_generate(self, request: Request, route: Route) -> Inference:
        body = await self._read(request)
        inputs = {tensor.name: tensor for tensor in self._control.model(route.about, route.version).inputs}
        return oip_generate.decode_generate(body, route.about, route.version, inputs)

    async def _read(self, request: Request) -> bytes:
        body = await request.read()
        return await self._decompressed(body, request) if b"content-encoding" in request.headers.raw else body

    async def _decompressed(self, body: bytes, request: Request) -> bytes:
        coding = request.headers.get("content-encoding") or ""
        if len(body) < IN_A_THREAD:
            return compression.decompress(body, coding, self._max_body)
        return await asyncio.to_thread(compression.decompress, body, coding, self._max_body)

    # ── about the server and its models ───────────────────────────────────────────────────────────────

    async def _live(self, request: Request, route: Route) -> Response:
        return Response(200, [JSON])

    async def _ready(self, request: Request, route: Route) -> Response:
        if not self._control.ready:
            raise Unavailable("The server is not ready.", retry_after=1.0)
        return Response(200, [JSON])

    async def _model_ready(self, request: Request, route: Route) -> Response:
        if not self._control.model_ready(route.about, route.version):
            raise Unavailable(f"The model `{route.about}` is not ready.", retry_after=1.0)
        return Response(200, [JSON])

    async def _server_metadata(self, request: Request, route: Route) -> Response:
        return _json(self._control.server())

    async def _model_metadata(self, request: Request, route: Route) -> Response:
        return _json(self._control.model(route.about, route.version))

    async def _config(self, request: Request, route: Route) -> Response:
        return _json(to_json(self._control.config(route.about, route.version)))

    async def _statistics(self, request: Request, route: Route) -> Response:
        return _json({"model_stats": self._control.statistics(route.about, route.version)})

    async def _scrape(self, request: Request, route: Route) -> Response:
        return Response(200, [("content-type", METRICS_TYPE)], self._metrics.text())

    # ── the repository ────────────────────────────────────────────────────────────────────────────────

    async def _index(self, request: Request, route: Route) -> Response:
        ready = oip_bodies.decode_index_request(await self._read(request))
        return _json(await self._control.index(ready=ready))

    async def _load(self, request: Request, route: Route) -> Response:
        await self._control.load(route.about, oip_bodies.decode_load(await self._read(request)))
        return Response(200, [JSON])

    async def _unload(self, request: Request, route: Route) -> Response:
        oip_bodies.decode_unload(await self._read(request))  # no model of ours depends on another
        await self._control.unload(route.about)
        return Response(200, [JSON])

    # ── shared memory ─────────────────────────────────────────────────────────────────────────────────

    async def _regions(self, request: Request, route: Route) -> Response:
        regions = self._control.memory.regions(route.about)
        return _json([{"name": r.name, "key": r.key, "offset": r.offset, "byte_size": r.byte_size} for r in regions])

    async def _register(self, request: Request, route: Route) -> Response:
        told = oip_bodies.decode_object(await self._read(request))
        key, offset, size = told.get("key"), told.get("offset", 0), told.get("byte_size")
        if not isinstance(key, str) or type(offset) is not int or type(size) is not int:
            raise CallerError("A region is registered with its `key`, its `byte_size` and, if not 0, its `offset`.")
        self._control.memory.register(route.about, key, offset, size)
        return Response(200, [JSON])

    async def _unregister(self, request: Request, route: Route) -> Response:
        self._control.memory.unregister(route.about)
        return Response(200, [JSON])

    async def _cuda_regions(self, request: Request, route: Route) -> Response:
        return _json([])

    async def _cuda_region(self, request: Request, route: Route) -> Response:
        if request.target.endswith(b"/unregister"):
            return Response(200, [JSON])  # there is none, which is what is asked for
        return no_cuda()

    # ── settings ──────────────────────────────────────────────────────────────────────────────────────

    async def _trace(self, request: Request, route: Route) -> Response:
        tracer = self._control.tracer
        if route.about:
            self._control.config(route.about)
        if request.method == "POST":
            return _json(tracer.update(oip_bodies.decode_object(await self._read(request)), route.about))
        return _json(tracer.settings.told(route.about))

    async def _logging(self, request: Request, route: Route) -> Response:
        logs = self._control.logs
        if request.method == "POST":
            return _json(logs.update(oip_bodies.decode_object(await self._read(request))))
        return _json(logs.told())


def _json(value: Any) -> Response:
    return Response(200, [JSON], oip_bodies.encode(value))


def _encode_event(computed: Computed) -> bytes:
    return oip_answers.encode_response(computed)[0]


def _not_one(count: str, model: str) -> CallerError:
    return CallerError(
        f"`generate` is for models that answer once, and `{model}` gave {count} responses: use `generate_stream`."
    )


def _wrong(request: Request, route: Route) -> CallerError:
    if not route.operation:
        return CallerError(f"There is nothing at {request.path[:256]}.", code="unknown_path")
    return CallerError(
        f"{request.path[:256]} takes {' or '.join(route.methods)}, not {request.method}.", code="method_not_allowed"
    )


async def _compressed(body: bytes, request: Request, fields: list[tuple[str, str]]) -> bytes:
    coding = compression.chosen(request.headers.get("accept-encoding"))
    fields.append(("vary", "accept-encoding"))
    if coding is None:
        return body
    fields.append(("content-encoding", coding))
    if len(body) < IN_A_THREAD:
        return compression.compress(body, coding)
    return await asyncio.to_thread(compression.compress, body, coding)
