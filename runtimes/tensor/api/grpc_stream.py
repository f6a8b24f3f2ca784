"""`ModelStreamInfer`: requests and responses of one call, each at its own pace.

Requests start in their order, and responses of models that are not decoupled have it too. A failure is a response of
the stream, which continues, unless the client requests a status (`triton_grpc_error`).
"""

from __future__ import annotations

import asyncio
from math import inf

from adapters import statuses
from adapters.assembly import join
from adapters.errors import MODEL_NOT_READY, REPORTED, InferenceError
from adapters.http2.call import GrpcCall
from adapters.http2.status import GrpcError
from adapters.offload import codecs
from adapters.tensors import Inference, Inferred
from adapters.types import DEVICE_MS
from adapters.wire.oip import proto_responses as oip_proto_answers
from runtimes.tensor.api.control import Control
from runtimes.tensor.api.refusals import grpc_trailers
from runtimes.tensor.service import InferenceService

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
