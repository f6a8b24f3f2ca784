"""The Open Inference Protocol over HTTP, with Triton's extensions: paths, bodies, statuses."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from typing import Any, TypeVar

from adapters import offload
from adapters.errors import CallerError, InferenceError, Unavailable
from adapters.http1.message import Request, Response
from adapters.offload import codecs
from adapters.tensors import Inference
from adapters.types import DEVICE_MS
from adapters.wire import compression
from adapters.wire.oip import bodies as oip_bodies
from adapters.wire.oip import generate as oip_generate
from adapters.wire.oip import requests
from adapters.wire.oip import requests as oip
from adapters.wire.oip import responses as oip_responses
from runtimes.tensor.api import restrictions
from runtimes.tensor.api.control import Control, no_cuda
from runtimes.tensor.api.explaining import ExplainDoor
from runtimes.tensor.api.invocations import InvocationsDoor
from runtimes.tensor.api.metrics import CONTENT_TYPE as METRICS_TYPE
from runtimes.tensor.api.metrics import Metrics
from runtimes.tensor.api.refusals import JSON, http_response
from runtimes.tensor.api.restrictions import PathMatch, Restrictions
from runtimes.tensor.api.sagemaker import SagemakerDoor
from runtimes.tensor.api.service import InferenceService
from runtimes.tensor.api.torchserve import TorchserveDoor
from runtimes.tensor.configuration.triton import to_json
from runtimes.tensor.models.served_model import Computed

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
        return _json(await self._control.manager.index(ready=ready))

    async def _load(self, request: Request, route: PathMatch) -> Response:
        await self._control.load(route.about, await _decoded(oip_bodies.decode_load, await request.read()))
        return Response(200, [JSON])

    async def _unload(self, request: Request, route: PathMatch) -> Response:
        with_dependents = await _decoded(oip_bodies.decode_unload, await request.read())
        await self._control.manager.unload(route.about, with_dependents=with_dependents)
        return Response(200, [JSON])

    async def _retain(self, request: Request, route: PathMatch) -> Response:
        seconds = await _decoded(oip_bodies.decode_retention, await request.read())
        self._control.manager.retain(route.about, route.version, seconds)
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


_FIELDS = [("content-type", "text/event-stream; charset=utf-8"), ("cache-control", "no-cache")]


Encode = Callable[[Computed], Awaitable[bytes]]


class Events:
    """The body of an answer. The status is sent with the first response, so a later failure is an event."""

    def __init__(self, responses: AsyncGenerator[Computed, None], encode: Encode, first: bytes | None) -> None:
        self._responses = responses
        self._encode = encode
        self._first = first
        self._over = first is None

    def __aiter__(self) -> Events:
        return self

    async def __anext__(self) -> bytes:
        if self._first is not None:
            first, self._first = self._first, None
            return first
        if self._over:
            raise StopAsyncIteration
        try:
            return _event(await self._encode(await anext(self._responses)))
        except InferenceError as error:
            self._over = True
            return _event(oip_responses.encode_error(error.message))

    async def aclose(self) -> None:
        await self._responses.aclose()


async def answer(responses: AsyncGenerator[Computed, None], encode: Encode) -> Response:
    """Wait for the first response: an earlier failure has its own status."""
    try:
        computed = await anext(responses, None)
        first = None if computed is None else _event(await encode(computed))
    except BaseException:
        await responses.aclose()
        raise
    return Response(200, _FIELDS, Events(responses, encode, first))


def _event(data: bytes) -> bytes:
    return b"data: %b\n\n" % data


IN_A_THREAD = 256 << 10
"""Bytes from which a body is compressed in a thread, so that it does not block the event loop."""
_LENGTH = oip.HEADER.encode()
_BINARY = ("content-type", "application/octet-stream")


class HttpDoor:
    """The handler of `adapters.http1`."""

    def __init__(
        self, service: InferenceService, control: Control, metrics: Metrics, restrictions: Restrictions
    ) -> None:
        self._service = service
        self._control = control
        self._restrictions = restrictions
        torchserve = TorchserveDoor(service, control)
        sagemaker = SagemakerDoor(control)
        invocations = InvocationsDoor(service, control)
        explaining = ExplainDoor(service, control)
        self._answers: dict[str, Callable[[Request, PathMatch], Awaitable[Response]]] = {
            "infer": self._infer,
            "generate": self._generate,
            "generate_stream": self._generate_stream,
            "infer_stream": self._infer_stream,
            **HttpControl(control, metrics).answers,
            "explain": explaining.explain,
            "explain_v1": explaining.explain_v1,
            "predict_v1": explaining.predict_v1,
            "predictions": torchserve.predictions,
            "ping": torchserve.ping,
            "models": torchserve.models,
            "described": torchserve.described,
            "load_placed": sagemaker.load,
            "unload_placed": sagemaker.unload,
            "invocations": invocations.invocations,
            "vertex": invocations.vertex,
        }

    async def __call__(self, request: Request) -> Response:
        route = restrictions.resolve(request.target)
        try:
            if request.method not in route.methods:
                if (change := restrictions.changing(route, request.method)) is None:
                    raise _wrong(request, route)
                route = change
            if self._restrictions:
                self._restrictions.check(route.group, request.headers.get)
            return await self._answers[route.operation](request, route)
        except InferenceError as error:
            return http_response(error)

    # ── inference ─────────────────────────────────────────────────────────────────────────────────────

    async def _infer(self, request: Request, route: PathMatch) -> Response:
        body = await request.read()
        headers = request.headers.raw
        length = headers.get(_LENGTH)
        size = None if length is None else oip.header_length(length.decode("latin-1"))
        inference = await codecs.decode_body(body, size, route.about, route.version)
        if size == 0:
            inference = self._complete(inference)
        computed = await self._service.infer(inference)
        body, size = await codecs.encode_response(computed, oip_responses.binary_outputs(inference))
        device = (DEVICE_MS, f"{computed.device_seconds * 1000:.3f}")
        fields = [JSON, device] if size is None else [_BINARY, (oip.HEADER, str(size)), device]
        if b"accept-encoding" in headers and len(body) >= compression.SMALLEST:
            body = await _compressed(body, request, fields)
        return Response(200, fields, body)

    def _complete(self, inference: Inference) -> Inference:
        """The inference of a raw request: the body is the only input, whose name and datatype the model has."""
        config = self._control.config(inference.model_name, inference.model_version)
        if len(config.inputs) != 1:
            raise CallerError(
                f"A raw request is for models with one input, and `{config.name}` has {len(config.inputs)}."
            )
        spec = config.inputs[0]
        return requests.complete(inference, spec.name, spec.datatype, spec.dims, batched=config.max_batch_size > 0)

    async def _infer_stream(self, request: Request, route: PathMatch) -> Response:
        inference = await codecs.decode_body(await request.read(), None, route.about, route.version)
        return await answer(self._service.marked_stream(inference), _encode_event)

    async def _generate(self, request: Request, route: PathMatch) -> Response:
        inference = await self._generation(request, route)
        only: Computed | None = None
        async with aclosing(self._service.stream(inference)) as responses:
            async for computed in responses:
                if only is not None:
                    raise _not_one("several", inference.model_name)
                only = computed
        if only is None:
            raise _not_one("no", inference.model_name)
        return Response(200, [JSON], await _encode_generated(only))

    async def _generate_stream(self, request: Request, route: PathMatch) -> Response:
        inference = await self._generation(request, route)
        return await answer(self._service.stream(inference), _encode_generated)

    async def _generation(self, request: Request, route: PathMatch) -> Inference:
        body = await request.read()
        inputs = {tensor.name: tensor for tensor in self._control.model(route.about, route.version).inputs}
        return await offload.run(len(body), oip_generate.decode_generate, body, route.about, route.version, inputs)


async def _encode_event(computed: Computed) -> bytes:
    body, _ = await codecs.encode_response(computed)
    return body


async def _encode_generated(computed: Computed) -> bytes:
    size = oip_responses.json_bytes(computed)
    return await offload.run(size, oip_generate.encode_generate, codecs.without_extras(computed))


def _not_one(count: str, model: str) -> CallerError:
    return CallerError(
        f"`generate` is for models that answer once, and `{model}` gave {count} responses: use `generate_stream`."
    )


def _wrong(request: Request, route: PathMatch) -> CallerError:
    if not route.operation:
        return CallerError(f"Unknown path: {request.path[:256]}.", code="unknown_path")
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
