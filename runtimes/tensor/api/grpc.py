"""The Open Inference Protocol over gRPC: `inference.GRPCInferenceService`, and `grpc.health.v1.Health`.

In `ModelStreamInfer` requests start in their order, and responses of models that are not decoupled have it too. A
failure is a response of the stream, which continues, unless the client requests a status (`triton_grpc_error`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from math import inf
from typing import Any

from google.protobuf.message import DecodeError

from adapters import statuses
from adapters.assembly import join
from adapters.errors import MODEL_NOT_READY, REPORTED, CallerError, InferenceError
from adapters.grpc_health import Health
from adapters.http2.call import GrpcCall
from adapters.http2.status import Code, GrpcError
from adapters.offload import codecs
from adapters.tensors import Inference, Inferred
from adapters.types import DEVICE_MS
from adapters.wire.oip import card as oip_card
from adapters.wire.oip import proto_contents as oip_contents
from adapters.wire.oip import proto_responses as oip_proto_answers
from adapters.wire.oip.bodies import Load
from adapters.wire.proto_json import fill
from adapters.wire.protos import METHODS, RpcMethod
from runtimes.tensor.api.control import Control, no_cuda
from runtimes.tensor.api.refusals import grpc_trailers
from runtimes.tensor.api.restrictions import GRPC_PREFIX, Restrictions
from runtimes.tensor.api.service import InferenceService
from runtimes.tensor.configuration.triton import to_message

MAX_IN_FLIGHT = 256
"""Requests of one stream in flight; further requests are not read until one is answered."""


class InferStream:
    """One call of `ModelStreamInfer`."""

    def __init__(self, service: InferenceService, control: Control, call: GrpcCall) -> None:
        self._service = service
        self._control = control
        self._call = call
        self._deadline = inf if call.deadline is None else call.deadline
        self._with_status = call.metadata.get("triton_grpc_error", "").lower() == "true"
        self._room = asyncio.Semaphore(MAX_IN_FLIGHT)
        self._writing = asyncio.Lock()
        self._device_seconds = 0.0
        self._before: asyncio.Task[None] | None = None  # the last request of those that are answered in order

    async def run(self) -> None:
        """Serve the call until the client has sent its last request and all are answered. Raises `GrpcError`."""
        try:
            async with asyncio.TaskGroup() as requests:
                while True:
                    await self._room.acquire()
                    message = await self._call.read()
                    if message is None:
                        break
                    await self._begin(requests, message)
        except BaseExceptionGroup as group:
            # The first that failed has ended the others.
            raise group.exceptions[0] from None
        self._call.finish(((DEVICE_MS, f"{self._device_seconds * 1000:.3f}"),))

    async def _begin(self, requests: asyncio.TaskGroup, message: bytes) -> None:
        try:
            inference = await codecs.decode_message(message)
        except InferenceError as error:
            self._before = requests.create_task(self._refused(error, self._before))
            return
        if self._control.is_decoupled(inference.model_name, inference.model_version):
            requests.create_task(self._answer(inference, None))
        else:
            self._before = requests.create_task(self._answer(inference, self._before))

    async def _refused(self, error: InferenceError, before: asyncio.Task[None] | None) -> None:
        try:
            await self._fail(error, "", before)
        finally:
            self._room.release()

    async def _answer(self, inference: Inference, before: asyncio.Task[None] | None) -> None:
        """Write any number of responses, or one error."""
        responses = self._service.marked_stream(inference, self._deadline)
        try:
            async for computed in responses:
                self._device_seconds += computed.device_seconds
                await self._write(computed, before)
        except InferenceError as error:
            # Whether the model itself has failed is all that a client can go by: there is no status.
            by_model = error.kind not in ("caller", "capacity")
            await self._fail(error, inference.id, before, inference.model_name if by_model else "")
        finally:
            await responses.aclose()
            self._room.release()

    async def _write(self, inferred: Inferred, before: asyncio.Task[None] | None) -> None:
        parts = oip_proto_answers.infer_response_parts(inferred)
        await self._send(await join(oip_proto_answers.stream_response_parts(parts)), before)

    async def _fail(self, error: InferenceError, id_: str, before: asyncio.Task[None] | None, model: str = "") -> None:
        if self._with_status:
            raise GrpcError(statuses.grpc_code(error), error.message, grpc_trailers(error))
        code = error.code if error.code in REPORTED or error.code == MODEL_NOT_READY else ""
        await self._send(oip_proto_answers.encode_stream_error(error.message, id_, model, code), before)

    async def _send(self, message: bytes, before: asyncio.Task[None] | None) -> None:
        if before is not None and not before.done():
            await asyncio.wait((before,))
        async with self._writing:
            await self._call.write(message)


Answer = Callable[[Any, Any], Awaitable[None]]
"""Fills the response, the second, from the request."""
SERVICE = "inference.GRPCInferenceService"


class GrpcDoor:
    """The handler of `adapters.http2`."""

    def __init__(self, service: InferenceService, control: Control, restrictions: Restrictions) -> None:
        self._service = service
        self._control = control
        self._restrictions = restrictions
        health = Health([SERVICE], lambda: control.ready)
        self._calls: dict[str, tuple[str, Callable[[GrpcCall], Awaitable[None]]]] = {
            METHODS["ModelInfer"].path: ("inference", self._infer),
            METHODS["ModelStreamInfer"].path: ("inference", self._stream),
            **{path: ("health", answer) for path, answer in health.calls.items()},
        }
        for name, (group, answer) in self._unary_answers().items():
            self._calls[METHODS[name].path] = (group, self._unary(METHODS[name], answer))

    def _unary_answers(self) -> dict[str, tuple[str, Answer]]:
        return {
            "ServerLive": ("health", self._server_live),
            "ServerReady": ("health", self._server_ready),
            "ModelReady": ("health", self._model_ready),
            "ServerMetadata": ("metadata", self._server_metadata),
            "ModelMetadata": ("metadata", self._model_metadata),
            "ModelConfig": ("model-config", self._config),
            "ModelStatistics": ("statistics", self._statistics),
            "RepositoryIndex": ("model-repository", self._index),
            "RepositoryModelLoad": ("model-repository", self._load),
            "RepositoryModelUnload": ("model-repository", self._unload),
            "SystemSharedMemoryStatus": ("shared-memory", self._regions),
            "SystemSharedMemoryRegister": ("shared-memory", self._register),
            "SystemSharedMemoryUnregister": ("shared-memory", self._unregister),
            "CudaSharedMemoryStatus": ("shared-memory", self._nothing),
            "CudaSharedMemoryRegister": ("shared-memory", self._no_cuda),
            "CudaSharedMemoryUnregister": ("shared-memory", self._nothing),
            "TraceSetting": ("trace", self._trace),
            "LogSettings": ("logging", self._logging),
        }

    async def __call__(self, call: GrpcCall) -> None:
        method = self._calls.get(call.path)
        if method is None:
            raise GrpcError(Code.UNIMPLEMENTED, f"There is no method {call.path[:256]}.")
        try:
            if self._restrictions:
                self._restrictions.check(method[0], call.metadata.get, GRPC_PREFIX)
            await method[1](call)
        except InferenceError as error:
            raise GrpcError(statuses.grpc_code(error), error.message, grpc_trailers(error)) from None

    # ── inference ─────────────────────────────────────────────────────────────────────────────────────

    async def _infer(self, call: GrpcCall) -> None:
        inference = await codecs.decode_message(await call.unary())
        deadline = call.deadline
        computed = await self._service.infer(inference, inf if deadline is None else deadline)
        message = await join(oip_proto_answers.infer_response_parts(computed))
        call.reply(message, ((DEVICE_MS, f"{computed.device_seconds * 1000:.3f}"),))

    async def _stream(self, call: GrpcCall) -> None:
        await InferStream(self._service, self._control, call).run()

    def _unary(self, method: RpcMethod, answer: Answer) -> Callable[[GrpcCall], Awaitable[None]]:
        async def answered(call: GrpcCall) -> None:
            try:
                request = method.request.FromString(await call.unary())
            except (DecodeError, UnicodeDecodeError):
                raise CallerError(f"The message is not a {method.request.DESCRIPTOR.name}.") from None
            response = method.response()
            await answer(request, response)
            call.reply(response.SerializeToString())

        return answered

    # ── about the server and its models ───────────────────────────────────────────────────────────────

    async def _server_live(self, request: Any, response: Any) -> None:
        response.live = True

    async def _server_ready(self, request: Any, response: Any) -> None:
        response.ready = self._control.ready

    async def _model_ready(self, request: Any, response: Any) -> None:
        response.ready = self._control.model_ready(request.name, request.version)

    async def _server_metadata(self, request: Any, response: Any) -> None:
        source = self._control.server()
        response.name, response.version = source.name, source.version
        response.extensions.extend(source.extensions)

    async def _model_metadata(self, request: Any, response: Any) -> None:
        source = self._control.model(request.name, request.version)
        response.name, response.platform = source.name, source.platform
        response.versions.extend(source.versions)
        for tensors, into in ((source.inputs, response.inputs), (source.outputs, response.outputs)):
            for tensor in tensors:
                into.add(name=tensor.name, datatype=tensor.datatype, shape=tensor.shape)
        oip_card.add_parameters(response, source.parameters)

    async def _config(self, request: Any, response: Any) -> None:
        response.config.CopyFrom(to_message(self._control.config(request.name, request.version)))

    async def _statistics(self, request: Any, response: Any) -> None:
        fill(response, {"model_stats": self._control.statistics(request.name, request.version)})

    # ── the repository ────────────────────────────────────────────────────────────────────────────────

    async def _index(self, request: Any, response: Any) -> None:
        for entry in await self._control.manager.index(ready=request.ready):
            response.models.add(name=entry.name, version=entry.version, state=entry.state, reason=entry.reason)

    async def _load(self, request: Any, response: Any) -> None:
        load = Load(None, {})
        for name, parameter in request.parameters.items():
            if name == "config":
                load.config = oip_contents.typed(parameter, name, "string_param")
            elif name.startswith("file:"):
                load.files[name.removeprefix("file:")] = oip_contents.typed(parameter, name, "bytes_param")
            else:
                raise CallerError(f"Unknown load parameter `{name[:64]}`: expected config or file:PATH.", param=name)
        if load.files and load.config is None:
            raise CallerError("Files need a `config` beside them.", param="config")
        await self._control.load(request.model_name, load)

    async def _unload(self, request: Any, response: Any) -> None:
        dependents = False
        if "unload_dependents" in request.parameters:
            dependents = oip_contents.typed(request.parameters["unload_dependents"], "unload_dependents", "bool_param")
        await self._control.manager.unload(request.model_name, with_dependents=dependents)

    # ── shared memory ─────────────────────────────────────────────────────────────────────────────────

    async def _regions(self, request: Any, response: Any) -> None:
        for region in self._control.memory.regions(request.name):
            source = response.regions[region.name]
            source.name, source.key = region.name, region.key
            source.offset, source.byte_size = region.offset, region.byte_size

    async def _register(self, request: Any, response: Any) -> None:
        self._control.memory.register(request.name, request.key, request.offset, request.byte_size)

    async def _unregister(self, request: Any, response: Any) -> None:
        self._control.memory.unregister(request.name)

    async def _nothing(self, request: Any, response: Any) -> None:
        """CUDA shared memory has no regions: its status is empty, and unregistering does nothing."""

    async def _no_cuda(self, request: Any, response: Any) -> None:
        no_cuda()

    # ── settings ──────────────────────────────────────────────────────────────────────────────────────

    async def _trace(self, request: Any, response: Any) -> None:
        tracer = self._control.tracer
        if request.model_name:
            self._control.config(request.model_name)
        changes = {name: list(setting.value) for name, setting in request.settings.items()}
        settings = tracer.update(changes, request.model_name) if changes else tracer.settings.report(request.model_name)
        for name, value in settings.items():
            response.settings[name].value.extend([value] if isinstance(value, str) else value)

    async def _logging(self, request: Any, response: Any) -> None:
        logs = self._control.logs
        changes = {
            name: getattr(setting, which)
            for name, setting in request.settings.items()
            if (which := setting.WhichOneof("parameter_choice"))
        }
        for name, value in (logs.update(changes) if changes else logs.report()).items():
            field = (
                "bool_param"
                if isinstance(value, bool)
                else "uint32_param"
                if isinstance(value, int)
                else "string_param"
            )
            setattr(response.settings[name], field, value)
