"""Adapter of Ray Serve over gRPC: forwards calls of an application's own services, and does not decode messages."""

from __future__ import annotations

import re
from functools import partial
from typing import NoReturn

from adapters.base import Answer
from adapters.call import Call
from adapters.errors import BackendError, CallerError
from adapters.http2.channel import Channel, encode_fields
from adapters.http2.status import Code, GrpcError
from adapters.registry import Address
from adapters.requests import AppRequest, ModelQuery, ModelRequest
from adapters.types import APP, Deadline, Usage
from adapters.upstreams import failed_status
from adapters.upstreams.apps.calls import body_of
from adapters.upstreams.apps.http_app import MAX_ANSWER, no_such_kind
from adapters.upstreams.declared_tensors import not_reported, ready_answer
from adapters.upstreams.dial import grpc_channel, names
from adapters.upstreams.failed_status import unknown_model
from adapters.upstreams.grpc_answers import AppMessages, check_time, refuse
from adapters.wire.apps import ray_serve as wire
from config.schema.config import PoolConfig
from config.schema.protocols.apps import RayServeGrpcProtocol

_METHOD = re.compile(r"/[A-Za-z_][A-Za-z0-9_.]*/[A-Za-z_][A-Za-z0-9_]*")
_OF_RAY = "/ray.serve.RayServeAPIService/"
_HEALTHZ, _LIST = f"{_OF_RAY}Healthz".encode(), f"{_OF_RAY}ListApplications".encode()
PROTOBUF = "application/x-protobuf"


def make(pool: PoolConfig, address: Address) -> RayServeGrpcAdapter:
    """Return the adapter of one endpoint of a pool."""
    protocol = pool.protocol
    assert isinstance(protocol, RayServeGrpcProtocol)
    return RayServeGrpcAdapter(grpc_channel(pool, address, MAX_ANSWER), protocol, **names(pool))


class RayServeGrpcAdapter:
    """Adapter of one endpoint.

    `model` is the name of the application or of the multiplexed model, if clients use another name.
    """

    def __init__(self, channel: Channel, protocol: RayServeGrpcProtocol, *, model: str | None = None) -> None:
        self._channel = channel
        self._application = protocol.application
        self._multiplexed = protocol.multiplexed
        self._model = model

    async def call(self, request: ModelRequest, call: Call) -> Answer:
        if isinstance(request, AppRequest):
            return await self._call(request, call)
        if isinstance(request, ModelQuery):
            if request.about != "ready":
                raise not_reported(request)
            return await self._ready(request, call)
        raise no_such_kind(request)

    async def _call(self, request: AppRequest, call: Call) -> Answer:
        """Return a stream of messages if the client accepts a stream, else the only message of the response."""
        path, no = request.path, partial(self._refuse, request, call)
        if not _METHOD.fullmatch(path) or path.startswith(_OF_RAY):
            raise CallerError("An application over gRPC is called as /package.Service/Method.", code="unknown_url")
        try:
            if request.stream:
                return await self._stream(request, call)
            message, fields = await body_of(request), self._fields(request, call)
            body, _ = await self._channel.request(path.encode(), message, fields, call.deadline)
        except GrpcError as error:
            no(error)
        return Answer(content_type=PROTOBUF, body=body, usage=Usage(bytes=len(body), exact=True), form=APP)

    async def _ready(self, query: ModelQuery, call: Call) -> Answer:
        try:
            listed, _ = await self._channel.request(_LIST, b"", b"", call.deadline)
        except GrpcError as error:
            self._refuse(query, call, error)
        if (self._application or self._model or query.model) not in wire.decode_listing(listed):
            raise failed_status.unavailable(query, "its proxy lists no such application")
        return ready_answer(query)

    async def _stream(self, request: AppRequest, call: Call) -> Answer:
        path, fields = request.path.encode(), self._fields(request, call)
        exchange = await self._channel.open_stream(path, await body_of(request), fields, call.deadline)
        return await AppMessages(exchange, partial(self._refuse, request, call), content_type=PROTOBUF).begun()

    def _fields(self, request: AppRequest, call: Call) -> bytes:
        name = self._model or request.model
        trace = call.context
        fields = [("application", self._application or name), ("request_id", call.id), *trace]
        if self._multiplexed:
            fields.append(("multiplexed_model_id", name))
        return encode_fields([(key, value) for key, value in fields if value])

    def _refuse(self, request: ModelRequest, call: Call, error: GrpcError) -> NoReturn:
        """Raise the typed error of a status."""
        check_time(error, call.deadline, self._channel.now())
        if error.code == Code.NOT_FOUND and "ListApplications" in error.message:
            raise unknown_model() from None
        refuse(request, error)

    async def probe(self, timeout: float) -> None:
        deadline = Deadline(self._channel.now() + timeout, timeout, timeout)
        try:
            await self._channel.request(_HEALTHZ, b"", b"", deadline)
        except GrpcError as error:
            raise BackendError(f"The health check was answered with status {error.code}.") from None

    async def aclose(self) -> None:
        await self._channel.aclose()
