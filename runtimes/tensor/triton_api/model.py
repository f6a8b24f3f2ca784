"""A loaded `TritonPythonModel`, and the loop that executes its requests."""

from __future__ import annotations

import asyncio
import sys
import threading
import traceback
from contextlib import suppress
from typing import Any
from weakref import WeakValueDictionary

import msgspec

from adapters.tensors import Data
from runtimes.tensor.requests import messages
from runtimes.tensor.requests.messages import ExecutedHead, InferenceHead, ModelMessage, ResponseHead
from runtimes.tensor.requests.outcomes import NOT_ITERATIVE
from runtimes.tensor.triton_api import process, requests
from runtimes.tensor.triton_api.channel import RequestChannel
from runtimes.tensor.triton_api.errors import INTERNAL, TritonModelException
from runtimes.tensor.triton_api.requests import BackendRequest
from runtimes.tensor.triton_api.responses import BackendResponse, BackendResponseSender
from runtimes.tensor.triton_api.tensors import BackendTensor

MAX_MESSAGE = 1000
_decode_requests = msgspec.msgpack.Decoder(list[InferenceHead]).decode
_decode_credit = msgspec.msgpack.Decoder(int).decode


class TritonModel:
    """Executes batches of requests. The joined batches of other models are not supported."""

    def __init__(self, model: Any, name: str, *, decoupled: bool) -> None:
        self._model = model
        self._execute = getattr(model, "execute", None)
        self._name = name
        self._decoupled = decoupled
        self._senders: WeakValueDictionary[int, BackendResponseSender] = WeakValueDictionary()
        self._rescheduled: dict[int, BackendResponseSender] = {}
        """Senders of requests that will be executed again."""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._background: set[Any] = set()

    def infer(self, inputs: Any) -> Any:
        raise TritonModelException("a TritonPythonModel executes requests, and no joined batch")

    def close(self) -> None:
        process.executing = False
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._loop.stop)
        if callable(finalize := getattr(self._model, "finalize", None)):
            finalize()

    # ── the loop ──────────────────────────────────────────────────────────────────────────────────────

    def serve(self, channel: RequestChannel) -> None:
        """Execute until the server closes the connection."""
        channel.handlers[messages.CREDIT] = self._credit
        channel.handlers[messages.CANCEL] = self._cancel
        channel.handlers[messages.CALL_RESPONSE] = requests.arrived
        process.executing = True
        process.executor = threading.get_ident()
        while (message := channel.wait(lambda: channel.batches.popleft() if channel.batches else None)) is not None:
            self._run(channel, message)
            del message

    def _run(self, channel: RequestChannel, message: ModelMessage) -> None:
        requests = self._requests(channel, message)
        head, parts = ExecutedHead(), list[Data]()
        try:
            returned = self._call(requests)
            head, parts = self._returned(requests, returned)
            channel.send(messages.EXECUTED, message.number, head, parts)
        except BaseException as error:  # SystemExit too: the model's code does not decide when we end
            self._failed(requests, error)
            channel.send(messages.EXECUTED, message.number, ExecutedHead())

    def responses(self, requests: list[BackendRequest]) -> list[BackendResponse | None]:
        """Execute requests of an ensemble's step. Returns the result of each; senders have the other responses."""
        try:
            returned = self._call(requests)
            if returned is None:
                return [None] * len(requests)
            self._check(requests, returned)
            responses: list[BackendResponse | None] = returned
            for request, response in zip(requests, responses, strict=True):
                sender = request.get_response_sender()
                if response is not None:
                    sender.count(response, final=True)
                elif request.is_rescheduled:
                    sender.fail(INTERNAL, NOT_ITERATIVE)
        except BaseException as error:
            self._failed(requests, error)
            return [None] * len(requests)
        return responses

    def _requests(self, channel: RequestChannel, message: ModelMessage) -> list[BackendRequest]:
        requests, offset = [], 0
        for head in _decode_requests(message.header):
            parts, offset = message.tensors(head.inputs, offset)
            inputs = [
                BackendTensor.received(tensor.name, tensor.datatype, tensor.shape, part)
                for tensor, part in zip(head.inputs, parts, strict=True)
            ]
            requests.append(BackendRequest.received(head, inputs, self._sender(channel, head)))
        return requests

    def _sender(self, channel: RequestChannel, head: InferenceHead) -> BackendResponseSender:
        """The sender of a request; that of an earlier execution, if the request was rescheduled."""
        sender = self._rescheduled.pop(head.number, None)
        if sender is None:
            requested = frozenset(head.requested)
            sender = BackendResponseSender(channel, head.number, requested, decoupled=self._decoupled)
            self._senders[head.number] = sender
        return sender

    # ── one execution ─────────────────────────────────────────────────────────────────────────────────

    def _call(self, requests: list[BackendRequest]) -> Any:
        """The result of `execute`; None for a coroutine that continues in the background."""
        if self._execute is None:
            raise TritonModelException(f"Python model {self._name} does not implement `execute` method.")
        returned = self._execute(requests)
        if not asyncio.iscoroutine(returned):
            return returned
        future = asyncio.run_coroutine_threadsafe(returned, self._event_loop())
        if not self._decoupled:
            return future.result()
        self._background.add(future)
        future.add_done_callback(lambda done: self._ended(done, requests))
        return None

    def _event_loop(self) -> asyncio.AbstractEventLoop:
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            threading.Thread(target=self._loop.run_forever, name="execute", daemon=True).start()
        return self._loop

    def _ended(self, done: Any, requests: list[BackendRequest]) -> None:
        """Handle the end of a decoupled model's coroutine."""
        self._background.discard(done)
        if not done.cancelled() and (error := done.exception()) is not None:
            self._failed(requests, error)
        requests.clear()

    def _returned(self, requests: list[BackendRequest], returned: Any) -> tuple[ExecutedHead, list[Data]]:
        """The message of the returned responses. Raises `TritonModelException` for an invalid result of `execute`."""
        rescheduled = tuple([self._reschedule(request) for request in requests if request.is_rescheduled])
        if returned is None:
            return ExecutedHead((), rescheduled), []
        self._check(requests, returned)
        heads: list[ResponseHead] = []
        parts: list[Data] = []
        for request, response in zip(requests, returned, strict=True):
            if response is not None:
                sender = request.get_response_sender()
                sender.count(response, final=True)
                head, tensors = sender.head(response, final=True)
                heads.append(head)
                parts += tensors
        return ExecutedHead(tuple(heads), rescheduled), parts

    def _check(self, requests: list[BackendRequest], returned: Any) -> None:
        if self._decoupled:
            raise TritonModelException(
                f"Python model '{self._name}' is using the decoupled mode and the execute function must return None."
            )
        if not isinstance(returned, list):
            raise TritonModelException(f"Expected a list in the execute return, found type '{type(returned)}'.")
        if len(returned) != len(requests):
            raise TritonModelException(
                "Number of InferenceResponse objects do not match the number of InferenceRequest objects."
                f" InferenceRequest(s) size is:{len(requests)}, and InferenceResponse(s) size is:{len(returned)}\n"
            )
        for request, response in zip(requests, returned, strict=True):
            if response is not None and request.is_rescheduled:
                raise TritonModelException(
                    "Expected a None object in the execute function return list for reschduled request, found type"
                    f" '{type(response)}'."
                )
            if response is not None and not isinstance(response, BackendResponse):
                raise TritonModelException(
                    "Expected an 'InferenceResponse' object in the execute function return list, found type"
                    f" '{type(response)}'."
                )

    def _reschedule(self, request: BackendRequest) -> int:
        sender = request.get_response_sender()
        self._rescheduled[sender.number] = sender
        return sender.number

    def _failed(self, requests: list[BackendRequest], error: BaseException) -> None:
        """Fail all requests of the execution that have no final response yet."""
        print("".join(traceback.format_exception(error, limit=-20)), file=sys.stderr, flush=True)
        message = f"Failed to process the request(s) for model '{self._name}', message: {described(error)}"
        for request in requests:
            sender = request.get_response_sender()
            self._rescheduled.pop(sender.number, None)
            with suppress(TritonModelException):
                sender.fail(INTERNAL, message)

    # ── packets about requests ────────────────────────────────────────────────────────────────────────

    def _credit(self, message: ModelMessage) -> None:
        if (sender := self._senders.get(message.number)) is not None:
            sender.credit += _decode_credit(message.header)

    def _cancel(self, message: ModelMessage) -> None:
        if (sender := self._senders.get(message.number)) is not None:
            sender.cancelled = True
            self._rescheduled.pop(message.number, None)  # it is not executed again, and ends


def described(error: BaseException) -> str:
    """The type and the message of an exception."""
    try:
        text = str(error)
    except Exception:
        text = "(its message cannot be read)"  # an exception whose own __str__ raises
    name = type(error).__name__
    return f"{name}: {text}"[:MAX_MESSAGE] if text else name
