"""The attempts of a message until an answer, a final failure or the deadline: a front decodes it, the core answers."""

import asyncio
import logging
import secrets
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from math import inf

from adapters import offload, statuses
from adapters.brokers.base import BrokerMessage, MessageRejected, TopicRefused
from adapters.errors import BackendError, CallerError, DeadlineError, InferenceError
from adapters.http1.message import Response
from adapters.wire import sse
from adapters.wire.openai.model_field import with_model
from config.schema.bus import BindingConfig
from gateway.features.bus.answers import JSON, AnswerMessages
from gateway.features.bus.work import DeadReason, MessageEnd, MessageWork
from gateway.features.stored.keeper import Keeper
from gateway.features.stored.stored_responses import StoredResponses
from gateway.fronts.errors import openai_body, openai_response
from gateway.fronts.inner import InnerFronts, InnerRequest
from gateway.request.core import Core, internal_error
from policies.batches.lines import retry_of

log = logging.getLogger(__name__)
Publish = Callable[[Sequence[BrokerMessage]], Awaitable[Sequence[MessageRejected | None]]]
Pause = Callable[[float], Awaitable[None]]


class MessageRequests:
    """Answers the messages of one binding."""

    def __init__(self, binding: BindingConfig, core: Core, keeper: Keeper | None) -> None:
        self._fronts = InnerFronts(core, partial(StoredResponses, keeper=keeper))
        self._model = binding.model
        self._peer = f"bus:{binding.name}"

    async def answer(self, work: MessageWork) -> tuple[InnerRequest, Response]:
        """Answer one message. Failures are a status and an error of the request, as for a client."""
        body = work.event.data
        if self._model is not None:
            try:
                body = await offload.scan(len(body), with_model, work.event.content_type, body, self._model)
            except CallerError:
                body = work.event.data  # the front reports it
        http = InnerRequest(work.principal, work.target.encode(), work.headers, body, self._peer)
        try:
            return http, await self._fronts.answer(http)
        except Exception:
            log.exception("bus: a message failed")
            http.error = internal_error()
            return http, openai_response(http.error, [])


class MessageRunner:
    """Runs the messages of one binding. `pause` ends with an exception when the process drains."""

    def __init__(
        self,
        binding: BindingConfig,
        requests: MessageRequests,
        writer: AnswerMessages,
        publish: Publish,
        pause: Pause,
        now: Callable[[], float],
    ) -> None:
        self._binding = binding
        self._requests = requests
        self._writer = writer
        self._publish = publish
        self._pause = pause
        self._now = now
        self.retries = 0

    async def run(self, work: MessageWork) -> MessageEnd:
        """The end of a message that this process has claimed."""
        if work.ends_at == inf:
            return await self._attempts(work)
        try:
            async with asyncio.timeout_at(work.ends_at):
                return await self._attempts(work)
        except TimeoutError:
            return self.failed(work, DeadlineError("The deadline of the message has passed."), "")

    async def _attempts(self, work: MessageWork) -> MessageEnd:
        binding = self._binding
        while True:
            http, response = await self._requests.answer(work)
            if (error := http.error) is None:
                return await self._answered(work, http, response)
            left = work.ends_at - self._now()
            retry = retry_of(
                error.kind, error.retry_after, work.failures, left, most=binding.attempts, first=binding.backoff
            )
            if retry is None:
                return self.failed(work, error, _request_id(http), response)
            work.failures += retry.counts
            self.retries += 1
            await self._pause(retry.pause)

    async def _answered(self, work: MessageWork, http: InnerRequest, response: Response) -> MessageEnd:
        body = response.body
        if isinstance(body, bytes):
            kind = dict(response.headers).get("content-type", JSON)
            message = self._writer.answer(work, response.status, kind, body, _request_id(http))
            return MessageEnd("answered", work.deliveries, (message,), work)
        try:
            if not self._binding.stream:
                refusal = CallerError("The binding has no `stream`: send the message without.", param="stream")
                return self.failed(work, refusal, _request_id(http))
            return await self._streamed(work, http, response)
        finally:
            await body.aclose()

    async def _streamed(self, work: MessageWork, http: InnerRequest, response: Response) -> MessageEnd:
        """Publish the events of a stream as they come. A broken stream ends with its error and is not repeated."""
        assert not isinstance(response.body, bytes)
        splitter, stream, number = sse.Splitter(), secrets.token_hex(6), 0
        rejection: MessageRejected | None = None
        async for piece in response.body:
            events = [sse.data_of(event) for event in splitter.feed(piece)]
            messages = [
                self._writer.piece(work, stream, number + at, data)
                for at, data in enumerate(data for data in events if data and data != b"[DONE]")
            ]
            if messages:
                rejection = next(filter(None, await self._publish(messages)), None)
                number += len(messages)
            if rejection is not None:
                break
        error = http.record.error if http.record is not None else None
        if rejection is not None:
            code = "reply_topic_refused" if isinstance(rejection, TopicRefused) else "answer_rejected"
            error = BackendError("The broker rejects an event of the stream.", code=code)
        status = response.status if error is None else statuses.http_status(error)
        end = self._writer.end(work, stream, number, status, _request_id(http))
        if error is None:
            return MessageEnd("answered", work.deliveries, (end,), work)
        reason = DeadReason(error.code, error.message)
        dead = self._writer.dead(work.delivery, reason)
        return MessageEnd("failed", work.deliveries, (dead, end), work, reason)

    def failed(
        self, work: MessageWork, error: InferenceError, request_id: str, response: Response | None = None
    ) -> MessageEnd:
        """The end of a message that has failed: a dead letter, and the error as its answer."""
        status, body = statuses.http_status(error), openai_body(error)
        if response is not None and isinstance(response.body, bytes):
            status, body = response.status, response.body
        reason = DeadReason(error.code, error.message)
        messages = (self._writer.dead(work.delivery, reason), self._writer.answer(work, status, JSON, body, request_id))
        return MessageEnd("failed", work.deliveries, messages, work, reason)

    def broken(self, work: MessageWork) -> MessageEnd:
        """The end of a message at which the gateway itself failed."""
        return self.failed(work, internal_error(), "")


def _request_id(http: InnerRequest) -> str:
    return "" if http.record is None else http.record.request_id
