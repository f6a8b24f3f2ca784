"""Publishes requests, and assigns the messages of the reply topic to them."""

import asyncio
import itertools
import logging
import secrets
import time
from typing import Final

from adapters.brokers.base import (
    BrokerClient,
    BrokerInbox,
    BrokerMessage,
    BrokerUnavailable,
    MessageUnroutable,
    PublishEnd,
    TopicRefused,
)
from adapters.errors import (
    DeadlineError,
    InferenceError,
    TooLarge,
    TransportError,
    Unavailable,
    Unsupported,
    UpstreamSilent,
)
from adapters.http1.client import Client, ClientResponse
from adapters.lasting import lasting
from adapters.types import Deadline
from adapters.upstreams.bus.response import BusResponse
from adapters.wire.cloudevents import CloudEvent, EnvelopeError, decode, format_time, headers_of
from config.protocols.bus import BusProtocol

log = logging.getLogger(__name__)
REQUEST: Final = "com.headrace.request"
CANCEL: Final = "com.headrace.cancel"
PATIENCE = 1.0
FIRST_PAUSE, LONGEST_PAUSE = 0.1, 5.0
_ATTRIBUTES = ("traceparent", "tracestate")
_HEADERS = ("inference-header-content-length",)


class BusClient(Client):
    """A client whose requests are messages. At most `most` are in flight."""

    def __init__(self, broker: BrokerClient, section: BusProtocol, most: int, connect_timeout: float) -> None:
        super().__init__("http://bus", connect_timeout=connect_timeout, max_connections=most)
        self._broker = broker
        self._section = section
        self._most = most
        self._patience = connect_timeout
        self._name = secrets.token_hex(8)
        self._source = f"/headrace/{self._name}"
        self._numbers = itertools.count(1)
        self._waiting: dict[str, BusResponse] = {}
        self._is_listening = asyncio.Event()
        self._listener: asyncio.Task[None] | None = None
        self._cancels = set[asyncio.Task[None]]()
        self.late = 0
        """Answers to requests that had ended."""

    # ── requests ──────────────────────────────────────────────────────────────────────────────────────

    async def request(
        self, method: bytes, target: bytes, fields: bytes, body: bytes, deadline: Deadline
    ) -> ClientResponse:
        """Publish a request and wait for the first message of its answer."""
        if method != b"POST":
            raise Unsupported("Workers behind a message broker answer inferences only.")
        if len(self._waiting) >= self._most:
            raise Unavailable("Too many requests wait for the workers behind the broker.")
        await self.listening(min(self._patience, deadline.first_byte))
        id_ = f"{self._name}-{next(self._numbers)}"
        response = BusResponse(deadline, lambda: self._dropped(id_))
        self._waiting[id_] = response
        at = min(self.now() + deadline.first_byte, deadline.at)
        try:
            async with asyncio.timeout_at(at):
                await self._publish(self._message(id_, target, fields, body, deadline))
                await response.begun()
        except TimeoutError:
            response.close()
            if at == deadline.at:
                raise DeadlineError("The request's deadline has passed.") from None
            raise UpstreamSilent("No worker behind the broker began an answer in time.") from None
        except BaseException:
            response.close()
            raise
        return response

    async def _publish(self, message: BrokerMessage) -> None:
        rejection: PublishEnd
        try:
            (rejection,) = await self._broker.publish([message])
        except BrokerUnavailable as error:
            rejection = error
        if isinstance(rejection, BrokerUnavailable):
            raise TransportError("The message broker could not be reached.")
        if isinstance(rejection, MessageUnroutable | TopicRefused):
            raise Unavailable("No worker reads the topic of the requests.")
        if rejection is not None:
            raise TooLarge("The message broker rejects the request, for example because it is too large.")

    def _message(self, id_: str, target: bytes, fields: bytes, body: bytes, deadline: Deadline) -> BrokerMessage:
        lines = (line.partition(": ") for line in fields.decode("latin-1").split("\r\n") if line)
        given = {name.lower(): value for name, _, value in lines}
        attributes = {name: given[name] for name in _ATTRIBUTES if name in given}
        attributes |= {
            "replyto": self._section.reply,
            "path": target.decode("latin-1"),
            "deadline": format_time(time.time() + deadline.at - self.now()),
        }
        event = CloudEvent(id_, self._source, REQUEST, body, given.get("content-type", ""), attributes)
        headers = headers_of(event) | {name: given[name] for name in _HEADERS if name in given}
        return BrokerMessage(self._section.topic, body, headers, id_.encode(), id_)

    def _dropped(self, id_: str) -> None:
        """The response is not read any further."""
        response = self._waiting.pop(id_, None)
        if response is None or response.ended or self._section.cancels is None:
            return
        event = CloudEvent(id_, self._source, CANCEL, b"")
        cancel = BrokerMessage(self._section.cancels, b"", headers_of(event), id_.encode(), f"{id_}.cancel")
        task = asyncio.create_task(self._cancel(cancel))
        self._cancels.add(task)
        task.add_done_callback(self._cancels.discard)

    async def _cancel(self, message: BrokerMessage) -> None:
        try:
            await self._broker.publish([message])
        except BrokerUnavailable:
            return  # the deadline of the request ends it

    # ── answers ───────────────────────────────────────────────────────────────────────────────────────

    async def listening(self, patience: float) -> None:
        """Wait until the reply topic is read. Raises `TransportError`."""
        if self._listener is None and not self._closed:
            self._listener = asyncio.create_task(lasting("bus answers", self._listen), name="bus answers")
        if self._is_listening.is_set():
            return
        try:
            async with asyncio.timeout(patience):
                await self._is_listening.wait()
        except TimeoutError:
            error = TransportError("The message broker could not be reached.")
            error.delivered = False
            raise error from None

    async def _listen(self) -> None:
        pause = FIRST_PAUSE
        while True:
            try:
                await self._broker.open()
                inbox = await self._broker.listen(self._section.reply)
                self._is_listening.set()
                pause = FIRST_PAUSE
                try:
                    await self._receive(inbox)
                finally:
                    await inbox.aclose()
            except BrokerUnavailable as error:
                log.warning("the answers on %s cannot be read: %s", self._section.reply, error)
                self._unreachable()
            except Exception:
                self._unreachable()
                raise
            await asyncio.sleep(pause)
            pause = min(LONGEST_PAUSE, 2 * pause)

    async def _receive(self, inbox: BrokerInbox) -> None:
        while True:
            for delivery in await inbox.receive(PATIENCE):
                try:
                    event = decode(delivery.headers, delivery.body)
                except EnvelopeError:
                    event = None
                if event is None:
                    continue
                id_ = event.extensions.get("correlationid", "")
                if (response := self._waiting.get(id_)) is not None:
                    response.receive(event, delivery)
                elif id_.startswith(self._name):
                    self.late += 1

    def _unreachable(self) -> None:
        self._is_listening.clear()
        self._fail(TransportError("The message broker could not be reached."))

    def _fail(self, error: InferenceError) -> None:
        for response in list(self._waiting.values()):
            response.fail(error)

    async def aclose(self) -> None:
        await super().aclose()
        tasks = [task for task in (self._listener, *self._cancels) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._fail(TransportError("The endpoint is closed."))
        await self._broker.aclose()
