"""`ModelStreamInfer`: many requests over one call, each with any number of responses.

Limits, rules, log and metrics treat each message as a request. Requests of one sequence run one after the other, all
others concurrently. First responses are sent in the order of the requests, so that a model with one response for each
request responds in order; further responses are sent as they arrive.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace

from adapters import offload, statuses
from adapters.assembly import join
from adapters.base import Answer
from adapters.cut import survived
from adapters.errors import MODEL_NOT_READY, REPORTED, BackendError, InferenceError, ModelFailed
from adapters.http2.call import GrpcCall
from adapters.http2.status import GrpcError
from adapters.requests import InferRequest
from adapters.tensors import EMPTY_FINAL, FINAL, Inferred
from adapters.upstreams.inferred import decode
from adapters.wire import sse
from adapters.wire.oip import proto_responses as oip_proto_answers
from adapters.wire.oip import responses as oip_responses
from gateway.auth.keys import Principal
from gateway.fronts.door import Door
from gateway.telemetry import Record

TRACE = ("traceparent", "tracestate")
AT_ONCE = 32
"""Maximum of concurrent requests of one call. The next message is read when a request has ended."""
AS_STATUS = "triton_grpc_error"
"""The metadata that requests that a failure ends the call with its status."""


def _event(data: bytes) -> Inferred:
    """Decode an event. Raises `BackendError` for an error."""
    if (message := oip_responses.error_of(data)) is not None:
        raise BackendError(message)
    return oip_responses.decode_response(data, None)


Decode = Callable[[bytes], Awaitable[InferRequest]]


class InferStream:
    """One call. `decode` decodes its messages."""

    def __init__(self, door: Door, call: GrpcCall, principal: Principal, decode: Decode) -> None:
        self._door = door
        self._call = call
        self._principal = principal
        self._decode = decode
        self._headers = {name: value for name in TRACE if (value := call.metadata.get(name)) is not None}
        self._as_status = call.metadata.get(AS_STATUS, "").lower() == "true"
        self._places = asyncio.Semaphore(AT_ONCE)
        self._writing = asyncio.Lock()
        self._last = asyncio.Event()  # set at the first response to the latest request
        self._last.set()
        self._sequences: dict[str, asyncio.Event] = {}  # set when the latest request of a sequence has ended

    async def run(self) -> None:
        """Answer all requests of the call. Raises `GrpcError` for a failure that ends the call."""
        try:
            async with asyncio.TaskGroup() as requests:
                while (message := await self._next()) is not None:
                    turn, self._last = self._last, asyncio.Event()
                    requests.create_task(self._one(message, turn, self._last))
        except BaseExceptionGroup as failures:
            raise failures.exceptions[0] from None

    async def _next(self) -> bytes | None:
        await self._places.acquire()
        return await self._call.read()

    async def _one(self, message: bytes, turn: asyncio.Event, mine: asyncio.Event) -> None:
        """Answer one message. `turn` permits its first response; setting `mine` permits that of the next message."""
        core, id_, model = self._door.core, "", ""
        record = self._record()
        try:
            request = await self._decode(message)
            id_, model = request.inference.id, request.model
            async with self._in_order(request.sequence):
                answer = await core.handle(self._principal, request, self._call.metadata, record)
                try:
                    await turn.wait()
                    await self._answer(answer.routed(request), answer, mine, _arm_of(record))
                except InferenceError as error:
                    answer.end(error)
                    raise
                finally:
                    await answer.aclose()
        except InferenceError as error:
            core.end(record, error)
            await turn.wait()
            await self._failed(error, id_, model)
        except asyncio.CancelledError as error:
            cut = survived()
            core.end(record, cut or error)
            if cut is None:
                raise
            await self._failed(cut, id_, model)
        except Exception as error:
            core.end(record, error)
            raise
        finally:
            mine.set()
            self._places.release()

    def _record(self) -> Record:
        record, principal = self._door.record(self._headers, "infer", self._call.peer), self._principal
        record.hold(principal)
        return record

    @asynccontextmanager
    async def _in_order(self, sequence: str) -> AsyncIterator[None]:
        """Enter when the previous request of the sequence has ended."""
        if not sequence:
            yield
            return
        before, ended = self._sequences.get(sequence), asyncio.Event()
        self._sequences[sequence] = ended
        try:
            if before is not None:
                await before.wait()
            yield
        finally:
            ended.set()
            if self._sequences[sequence] is ended:
                del self._sequences[sequence]

    # ── answers ───────────────────────────────────────────────────────────────────────────────────────

    async def _answer(
        self, request: InferRequest, answer: Answer, begun: asyncio.Event, arm: Mapping[str, str]
    ) -> None:
        """Forward all responses to one request as they arrive. Raises `InferenceError` for a broken stream.

        The call has trailers for all of its requests, so the headers of an answer, and the arm of its request, are
        parameters of its first response.
        """
        headers = {**dict(answer.headers), **arm}
        if answer.body is not None:
            response = await decode(answer)
            await self._write(replace(response, parameters={**response.parameters, **headers, FINAL: True}))
        elif answer.form.wire == "oip-grpc":
            await self._messages(request, answer, begun, headers)
        else:
            await self._events(request, answer, begun, headers)

    async def _messages(
        self, request: InferRequest, answer: Answer, begun: asyncio.Event, headers: dict[str, str]
    ) -> None:
        """Forward the responses of an upstream over gRPC. An upstream that marks its first response marks the final
        one too."""
        marks = False
        added = [oip_proto_answers.parameters_marker(headers)] if headers else []
        async for message in answer:
            marks = marks or oip_proto_answers.is_final(message)
            parts = [message, *added] if marks else [message, *added, oip_proto_answers.final_marker(False)]
            await self._send(message if len(parts) == 1 else await join(parts))
            added = []
            begun.set()
        if not marks:
            await self._end(request, Inferred(request.model, request.version, request.inference.id))

    async def _events(
        self, request: InferRequest, answer: Answer, begun: asyncio.Event, headers: dict[str, str]
    ) -> None:
        """Forward the events of an upstream over HTTP."""
        last = Inferred(request.model, request.version, request.inference.id)
        added = headers
        async for piece in answer:
            async for event in self._decoded(piece):
                last = replace(event, parameters={FINAL: False, **event.parameters})
                await self._write(replace(last, parameters={**last.parameters, **added}) if added else last)
                added = {}
                begun.set()
        if last.parameters.get(FINAL) is not True:
            await self._end(request, last)

    async def _end(self, request: InferRequest, last: Inferred) -> None:
        """Write an empty final response if the request enables it."""
        if request.inference.parameters.get(EMPTY_FINAL) is True:
            await self._write(replace(last, parameters={FINAL: True}, outputs=[]))

    @staticmethod
    async def _decoded(piece: bytes) -> AsyncIterator[Inferred]:
        """Decode a piece of an upstream's event stream. Raises `BackendError` for an error in it."""
        for event in piece.split(b"\n\n"):
            if data := sse.data_of(event):
                yield await offload.run(len(data), _event, data)

    async def _write(self, response: Inferred) -> None:
        parts = oip_proto_answers.infer_response_parts(response)
        await self._send(await join(oip_proto_answers.stream_response_parts(parts)))

    async def _failed(self, error: InferenceError, id_: str, model_name: str) -> None:
        """Report an error in the stream, which continues, or end the call with the error."""
        if self._as_status:
            raise GrpcError(statuses.grpc_code(error), error.message)
        model = model_name if isinstance(error, ModelFailed) else ""
        code = error.code if error.code in REPORTED or error.code == MODEL_NOT_READY else ""
        await self._send(oip_proto_answers.encode_stream_error(error.message, id_, model, code))

    async def _send(self, message: bytes) -> None:
        """Write one message at a time, and no faster than the client reads."""
        async with self._writing:
            await self._call.write(message)


def _arm_of(record: Record) -> Mapping[str, str]:
    """The arm of a request and its id for feedback, if a split or a comparison has given it an arm."""
    if record.arm is None:
        return {}
    return {"x-request-id": record.feedback_id or record.request_id, "x-headrace-arm": record.arm}
