"""A process with a model that receives whole requests, and that may send requests to its server."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from contextvars import Context
from typing import Protocol

import msgspec

from adapters.tensors import Data
from runtimes.tensor.instances.calls import ModelCalls, Outbox
from runtimes.tensor.instances.child_process import ChildProcess
from runtimes.tensor.instances.process import ProcessWorker
from runtimes.tensor.instances.services import ModelServices
from runtimes.tensor.instances.worker import Job, Listener
from runtimes.tensor.requests import messages
from runtimes.tensor.requests.messages import LogLine, MessageTooLarge, ModelMessage, Query, QueryReply

_decode_query = msgspec.msgpack.Decoder(Query).decode
_decode_line = msgspec.msgpack.Decoder(LogLine).decode
_LEVELS = {"info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR, "debug": logging.DEBUG}
MAX_QUERIES = 64
"""Unanswered queries of one process."""


class RequestListener(Listener, Protocol):
    """Receives the events of a worker, on the loop."""

    is_loading: bool
    """Whether its model is loaded for the first time."""

    def executed(self, message: ModelMessage) -> None: ...

    def sent(self, message: ModelMessage) -> None: ...

    def latest_due(self) -> float: ...

    def context_of(self, number: int) -> Context | None: ...


class RequestWorker(ProcessWorker):
    """The loop's side of one process."""

    program = "runtimes.tensor.instances.child"

    def __init__(self, services: ModelServices, job: Job, listener: RequestListener) -> None:
        super().__init__(job, listener)
        self._requests = listener
        self._services = services
        self._outbox: Outbox | None = None
        self._calls: ModelCalls | None = None
        self._queries: set[asyncio.Task[None]] = set()
        self._metrics = services.metrics.holder()
        self._execution = 0

    def _start_child(self) -> ChildProcess:
        child = ChildProcess(self._job, self._received, self._exited, with_files=True, program=self.program)
        self._outbox = Outbox(child.socket, child.kill)
        self._calls = ModelCalls(self._services, self._outbox, self._job.config.name, self._requests)
        return child

    # ── to the process ────────────────────────────────────────────────────────────────────────────────

    def execute(self, head: object, tensors: Sequence[Data]) -> None:
        self._execution += 1
        self._post(messages.EXECUTE, self._execution, head, tensors)

    def credit(self, number: int, responses: int) -> None:
        self._post(messages.CREDIT, number, responses)

    def cancel(self, number: int) -> None:
        self._post(messages.CANCEL, number, None)

    def _post(self, kind: int, number: int, header: object, tensors: Sequence[Data] = ()) -> None:
        if self._outbox is not None and not self._gone:
            self._outbox.send(kind, number, header, tensors)

    # ── from the process ──────────────────────────────────────────────────────────────────────────────

    def _received(self, data: bytes) -> None:
        if data[0] < messages.FIRST_KIND:
            super()._received(data)
            return
        assert self._child is not None
        files, self._child.files = self._child.files, []
        try:
            message = messages.received(data, files)
        except OSError as error:
            self._child.log.text(f"a message of the model cannot be read: {error}")
            self._child.kill()
            return
        if not self._gone:
            self._handle(message)

    def _handle(self, message: ModelMessage) -> None:
        assert self._calls is not None
        if message.kind == messages.EXECUTED:
            self._requests.executed(message)
        elif message.kind == messages.RESPONSE:
            self._requests.sent(message)
        elif message.kind == messages.CALL:
            self._calls.begin(message)
        elif message.kind == messages.CALL_CREDIT:
            self._calls.credit(message)
        elif message.kind == messages.CALL_CANCEL:
            self._calls.cancel(message.number)
        elif message.kind == messages.QUERY:
            self._query(message.number, _decode_query(message.header))
        elif message.kind == messages.LOG:
            line = _decode_line(message.header)
            assert self._child is not None
            self._child.log.text(line.text, _LEVELS.get(line.level, logging.INFO))

    def _query(self, number: int, query: Query) -> None:
        """Answer a query, at once if possible: values of metrics must arrive in the order of their changes."""
        try:
            if self._metrics.has(query.operation):
                self._reply(number, QueryReply(self._metrics.answer(query.operation, query.arguments)))
                return
        except Exception as error:
            self._reply(number, QueryReply(error=str(error) or type(error).__name__))
            return
        if len(self._queries) >= MAX_QUERIES:
            self._reply(number, QueryReply(error="too many queries of one model to the server are unanswered"))
            return
        task = asyncio.get_running_loop().create_task(self._answer_query(number, query))
        self._queries.add(task)
        task.add_done_callback(self._queries.discard)

    async def _answer_query(self, number: int, query: Query) -> None:
        try:
            reply = QueryReply(
                await self._services.answer(query.operation, query.arguments, is_loading=self._requests.is_loading)
            )
        except Exception as error:
            reply = QueryReply(error=str(error) or type(error).__name__)
        self._reply(number, reply)

    def _reply(self, number: int, reply: QueryReply) -> None:
        if number:
            try:
                self._post(messages.REPLY, number, reply)
            except MessageTooLarge as error:
                self._post(messages.REPLY, number, QueryReply(error=str(error)))

    # ── its end ───────────────────────────────────────────────────────────────────────────────────────

    def abandon(self) -> None:
        super().abandon()
        self._release()

    async def aclose(self) -> None:
        self._gone = True
        self._release()
        await super().aclose()

    def _exited(self, how: str) -> None:
        self._release()
        super()._exited(how)

    def _release(self) -> None:
        """End the requests that the process has begun at the server."""
        if self._calls is not None:
            self._calls.close()
        for task in self._queries:
            task.cancel()
        self._metrics.close()
        if self._outbox is not None:
            self._outbox.close()
