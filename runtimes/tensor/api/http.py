"""The Open Inference Protocol over HTTP, with Triton's extensions: paths, bodies, statuses."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import aclosing

from adapters import offload
from adapters.errors import CallerError, InferenceError
from adapters.http1.message import Request, Response
from adapters.offload import codecs
from adapters.tensors import Inference
from adapters.types import DEVICE_MS
from adapters.wire import compression
from adapters.wire.oip import (
    generate as oip_generate,
)
from adapters.wire.oip import requests
from adapters.wire.oip import (
    requests as oip,
)
from adapters.wire.oip import (
    responses as oip_responses,
)
from runtimes.tensor.api import events, routes
from runtimes.tensor.api.control import Control
from runtimes.tensor.api.http_control import HttpControl
from runtimes.tensor.api.metrics import Metrics
from runtimes.tensor.api.refusals import JSON, http_response
from runtimes.tensor.api.restrictions import Restrictions
from runtimes.tensor.api.routes import PathMatch
from runtimes.tensor.nested import Computed
from runtimes.tensor.service import InferenceService

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
        self._answers: dict[str, Callable[[Request, PathMatch], Awaitable[Response]]] = {
            "infer": self._infer,
            "generate": self._generate,
            "generate_stream": self._generate_stream,
            "infer_stream": self._infer_stream,
            **HttpControl(control, metrics).answers,
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
        return await events.answer(self._service.marked_stream(inference), _encode_event)

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
        return await events.answer(self._service.stream(inference), _encode_generated)

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
