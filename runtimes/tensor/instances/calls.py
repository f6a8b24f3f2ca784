"""Requests of a model to models of the same server."""

from __future__ import annotations

import asyncio
import socket
from collections import deque
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing, suppress
from contextvars import Context
from dataclasses import dataclass, field
from typing import Final, Protocol

import msgspec

from adapters.errors import InferenceError
from adapters.tensors import NO_PARAMETERS, Data, Inference, Inferred, Parameters, RequestedOutput, Tensor
from runtimes.tensor.instances.services import ModelServices
from runtimes.tensor.requests import messages
from runtimes.tensor.requests.messages import (
    WINDOW,
    CallHead,
    MessageTooLarge,
    ModelMessage,
    Outgoing,
    ResponseHead,
    TensorHead,
)
from runtimes.tensor.requests.open_request import SEQUENCE_END, SEQUENCE_START
from runtimes.tensor.requests.outcomes import CANCELLED, INTERNAL, UNAVAILABLE, code_of, is_of_model

ELSEWHERE: Final = 4 * 1024 * 1024
"""Bytes that are copied on a thread, so that the loop does not wait for them."""


class Outbox:
    """The messages to send through one socket. `on_broken` is called when the other side has closed it."""

    def __init__(self, to: socket.socket, on_broken: Callable[[], None]) -> None:
        self._socket = to
        self._on_broken = on_broken
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[asyncio.Future[Outgoing]] = deque()
        self._watched = False
        self._closed = False

    def send(self, kind: int, number: int, header: object, tensors: Sequence[Data] = ()) -> None:
        """Send a message. Raises `MessageTooLarge`. A large message without memory for it breaks the connection."""
        size = sum([len(data) for data in tensors])
        if size > ELSEWHERE:
            packing = self._loop.run_in_executor(None, messages.packed, kind, number, header, tensors)
            self._waiting.append(packing)
            packing.add_done_callback(self._packed)
            return
        packet = messages.packed(kind, number, header, tensors)
        if not self._waiting and self._sent(packet):
            return
        waiting: asyncio.Future[Outgoing] = self._loop.create_future()
        waiting.set_result(packet)
        self._waiting.append(waiting)

    def _sent(self, packet: Outgoing) -> bool:
        """Send a packet now; False if the socket is full."""
        try:
            packet.send(self._socket)
        except BlockingIOError:
            if not self._watched and not self._closed:
                self._watched = True
                self._loop.add_writer(self._socket.fileno(), self._flush)
            return False
        except OSError:
            self._broken()
        packet.close()
        return True

    def _broken(self) -> None:
        if not self._closed:
            self._on_broken()

    def _packed(self, packing: asyncio.Future[Outgoing]) -> None:
        if packing.exception() is not None:
            self._broken()
        elif self._closed:
            packing.result().close()
        else:
            self._flush()

    def _flush(self) -> None:
        while self._waiting and self._waiting[0].done():
            if self._waiting[0].exception() is not None or self._sent(self._waiting[0].result()):
                self._waiting.popleft()
            else:
                return
        self._unwatch()

    def _unwatch(self) -> None:
        if self._watched:
            self._watched = False
            with suppress(OSError, ValueError):
                self._loop.remove_writer(self._socket.fileno())

    def close(self) -> None:
        """Discard the waiting messages, before the socket is closed."""
        self._closed = True
        self._unwatch()
        for waiting in self._waiting:
            if waiting.done() and waiting.exception() is None:
                waiting.result().close()
        self._waiting.clear()


MAX_CALLS: Final = 1024
"""Unanswered requests of one process."""
_decode_call = msgspec.msgpack.Decoder(CallHead).decode
_decode_credit = msgspec.msgpack.Decoder(int).decode


@dataclass(slots=True)
class OpenCall:
    """One request of a model."""

    task: asyncio.Task[None] | None = None
    credit: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(WINDOW))


class CallingRequests(Protocol):
    """The requests that a process executes, which cause its own requests."""

    def latest_due(self) -> float:
        """The latest deadline of them."""
        ...

    def context_of(self, number: int) -> Context | None:
        """The traces of one of them, or of the only one for 0; None if it is not known."""
        ...


class ModelCalls:
    """The requests of one process.

    A request is a part of the trace that the model passes with it. Without one, it is a part of the trace of the only
    request that the process executes, and of none among several.
    """

    def __init__(self, services: ModelServices, outbox: Outbox, model: str, causes: CallingRequests) -> None:
        self._services = services
        self._outbox = outbox
        self._model = model
        self._causes = causes
        self._calls: dict[int, OpenCall] = {}
        services.blocked.add(model, self)

    def begin(self, message: ModelMessage) -> None:
        number, head = message.number, _decode_call(message.header)
        if len(self._calls) >= MAX_CALLS:
            self._fail(number, INTERNAL, f"model {self._model} has {MAX_CALLS} unanswered requests to other models")
            return
        if head.blocking and not self._services.blocked.block(self, head.model):
            self._fail(
                number,
                UNAVAILABLE,
                f"Model {head.model} - Error when running inference: every copy of it waits for this request or for one"
                " like it. Add copies (`count` of its instance_group), or make the call in a thread.",
            )
            return
        parts, _ = message.tensors(head.inputs, 0)
        inputs = [
            Tensor(tensor.name, tensor.datatype, tensor.shape, part)
            for tensor, part in zip(head.inputs, parts, strict=True)
        ]
        call = self._calls[number] = OpenCall()
        work = self._run(number, head, inputs, call)
        context = self._causes.context_of(head.parent)
        own = Context() if context is None else context.copy()  # not that of the turn, which may be another request's
        call.task = asyncio.get_running_loop().create_task(work, context=own)
        call.task.add_done_callback(lambda _: self._ended(number, is_blocking=head.blocking))

    def _ended(self, number: int, *, is_blocking: bool) -> None:
        self._calls.pop(number, None)
        if is_blocking:
            self._services.blocked.release(self)

    def credit(self, message: ModelMessage) -> None:
        if (call := self._calls.get(message.number)) is not None:
            for _ in range(_decode_credit(message.header)):
                call.credit.release()

    def cancel(self, number: int) -> None:
        if (call := self._calls.get(number)) is not None and call.task is not None:
            call.task.cancel()

    def close(self) -> None:
        """Cancel all requests of a process that has ended."""
        self._services.blocked.remove(self._model, self)
        for number in list(self._calls):
            self.cancel(number)

    async def _run(self, number: int, head: CallHead, inputs: list[Tensor], call: OpenCall) -> None:
        try:
            inference = _inference(head, inputs)
            if head.decoupled:
                await self._stream(number, self._services.stream(inference, self._causes.latest_due()), call)
            else:
                computed = await self._services.infer(inference, self._causes.latest_due())
                self._send(number, computed, final=True)
        except InferenceError as error:
            if is_of_model(error):
                self._fail(number, code_of(error), error.message)
            else:
                prefix = f"Model {head.model} - Error when running inference: "
                self._fail(number, INTERNAL if error.kind == "caller" else code_of(error), prefix + error.message)
        except asyncio.CancelledError:
            self._fail(number, CANCELLED, "the request was cancelled")
            raise
        except MessageTooLarge as error:
            self._fail(number, INTERNAL, f"the response cannot be sent to the model: {error}")

    async def _stream(self, number: int, responses: AsyncGenerator[Inferred, None], call: OpenCall) -> None:
        """Send responses, each when the model can receive it; the last response is marked."""
        final = False
        async with aclosing(responses):
            async for computed in responses:
                await call.credit.acquire()
                final = bool(getattr(computed, "final", False))
                self._send(number, computed, final=final)
        if not final:
            self._outbox.send(messages.CALL_RESPONSE, number, ResponseHead(number, True, empty=True))

    def _send(self, number: int, computed: Inferred, *, final: bool) -> None:
        outputs = tuple([TensorHead(t.name, t.datatype, t.shape, len(t.data)) for t in computed.outputs])
        data: list[Data] = [tensor.data for tensor in computed.outputs]
        head = ResponseHead(number, final, outputs, parameters=dict(computed.parameters))
        self._outbox.send(messages.CALL_RESPONSE, number, head, data)

    def _fail(self, number: int, code: int, text: str) -> None:
        self._outbox.send(messages.CALL_RESPONSE, number, ResponseHead(number, True, error=(code, text)))


def _inference(head: CallHead, inputs: list[Tensor]) -> Inference:
    parameters: Parameters = NO_PARAMETERS
    own: dict[str, str | int | float | bool] = dict(head.parameters)
    if head.correlation:
        own["sequence_id"] = head.correlation
        own["sequence_start"] = bool(head.flags & SEQUENCE_START)
        own["sequence_end"] = bool(head.flags & SEQUENCE_END)
    if head.timeout:
        own["timeout"] = head.timeout
    if own:
        parameters = own
    return Inference(
        head.model, head.version, head.id, parameters, inputs, [RequestedOutput(name) for name in head.requested]
    )
