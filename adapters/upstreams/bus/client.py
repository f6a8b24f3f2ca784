"""Publishes requests, and assigns the messages of the reply topic to them."""

import asyncio
import itertools
import logging
import secrets
import time
from collections.abc import Awaitable, Callable
from typing import Final

from adapters.brokers.base import (
    BrokerClient,
    BrokerDelivery,
    BrokerInbox,
    BrokerMessage,
    BrokerUnavailable,
    MessageUnroutable,
    PublishEnd,
    TopicRefused,
)
from adapters.errors import (
    BackendError,
    DeadlineError,
    InferenceError,
    TooLarge,
    TransportError,
    Unavailable,
    Unsupported,
    UpstreamSilent,
)
from adapters.http1.client import MAX_ANSWER, Client, ClientResponse
from adapters.http1.exchange import Forward
from adapters.http1.message import Headers
from adapters.lasting import lasting
from adapters.types import Deadline
from adapters.wire import sse
from adapters.wire.cloudevents import CloudEvent, EnvelopeError, decode, format_time, headers_of
from adapters.wire.decoding import whole_number
from config.schema.protocols.bus import BusProtocol

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
            raise Unavailable("Too many requests wait for the workers behind the broker.").because("no_workers")
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
            raise Unavailable("No worker reads the topic of the requests.").because("no_workers")
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


# A response whose body arrives in messages.

PIECE, END = "com.headrace.piece", "com.headrace.end"
DONE = sse.encode(b"[DONE]")
MOST_AHEAD = 1000
"""Pieces that may arrive before an earlier one."""
LENGTH = b"inference-header-content-length"


class BusResponse(ClientResponse):
    """The response to one request. `dropped` is called once, when no further message is read."""

    __slots__ = (
        "_ahead", "_deadline", "_dropped", "_ended", "_error", "_loop", "_pieces", "_started", "_stream", "_turn",
        "_wake",
    )  # fmt: skip

    def __init__(self, deadline: Deadline, dropped: Callable[[], None]) -> None:
        self.status = 0
        self.headers = Headers({})
        self._exchange = None
        self._deadline = deadline
        self._dropped = dropped
        self._loop = asyncio.get_running_loop()
        self._pieces: list[bytes] = []
        self._ahead: dict[int, bytes] = {}
        self._stream = ""
        self._turn = 0
        self._started = self._ended = False
        self._error: InferenceError | None = None
        self._wake = asyncio.Event()

    def receive(self, event: CloudEvent, delivery: BrokerDelivery) -> None:
        """A message of the reply topic. A copy of an earlier one has no effect."""
        if not self._ended and self._error is None:
            if event.type in (PIECE, END):
                self._receive_piece(event)
            else:
                self._begin(_status(event), event.content_type, delivery.headers.get(LENGTH.decode()))
                self._pieces.append(event.data)
                self._end()
        self._wake.set()

    def _begin(self, status: int, content_type: str, length: str | None = None) -> None:
        raw = {b"content-type": (content_type or "application/json").encode("latin-1", "replace")}
        if length is not None:
            raw[LENGTH] = length.encode("latin-1", "replace")
        self.status, self.headers, self._started = status, Headers(raw), True

    def _receive_piece(self, event: CloudEvent) -> None:
        stream, number = event.extensions.get("streamid", ""), whole_number(event.extensions.get("sequence", ""))
        if number is None:
            self._error = BackendError("A message of a stream has no number.")
            return
        if not self._started:
            status = _status(event) if event.type == END else 200
            self._begin(status, "text/event-stream")
            self._stream = stream
        if stream != self._stream:
            self._error = TransportError("The worker has begun the stream again.")
            return
        self._ahead[number] = sse.encode(event.data) if event.type == PIECE else b""
        while (piece := self._ahead.pop(self._turn, None)) is not None:
            self._turn += 1
            if not piece:
                self._pieces.append(DONE)
                self._end()
                return
            self._pieces.append(piece)
        if len(self._ahead) > MOST_AHEAD:
            self._error = BackendError("Messages of a stream are missing.")

    def _end(self) -> None:
        self._ended = True
        self._ahead.clear()
        self._drop()

    async def begun(self) -> None:
        """Wait for the first message."""
        while not self._started and self._error is None:
            self._wake.clear()
            await self._wake.wait()
        if self._error is not None:
            raise self._error

    def fail(self, error: InferenceError) -> None:
        """End the response with an error."""
        self._error = self._error or error
        self._wake.set()

    # ── the body ──────────────────────────────────────────────────────────────────────────────────────

    def take(self) -> bytes | None:
        if self._pieces:
            data, self._pieces = b"".join(self._pieces), []
            return data
        if self._error is not None:
            self.close()
            raise self._error
        return b"" if self._ended else None

    def more(self, patience: float | None = None, forward: Forward | None = None) -> Awaitable[None]:
        """Wait for the next message. `forward` takes none: `take` joins the messages that have arrived."""
        return self._more(self._deadline.idle if patience is None else patience)

    async def _more(self, patience: float) -> None:
        self._wake.clear()
        at = min(self._loop.time() + patience, self._deadline.at)
        try:
            async with asyncio.timeout_at(at):
                await self._wake.wait()
        except TimeoutError:
            if at == self._deadline.at:
                raise DeadlineError("The request's deadline has passed.") from None
            raise UpstreamSilent("The upstream sent nothing for too long.") from None

    @property
    def max_answer(self) -> int:
        return MAX_ANSWER

    async def read(self, limit: int | None = None) -> bytes:
        pieces, size = list[bytes](), 0
        while data := await self.piece():
            pieces.append(data)
            size += len(data)
            if size > (limit or MAX_ANSWER):
                pieces.clear()
                self.close()
                raise BackendError("The upstream's answer is too large.")
        return b"".join(pieces)

    def close(self) -> None:
        """Discard the rest. A request without its answer is cancelled."""
        self._drop()

    def _drop(self) -> None:
        dropped, self._dropped = self._dropped, _nothing
        dropped()

    @property
    def ended(self) -> bool:
        """Whether the whole answer has arrived."""
        return self._ended


def _nothing() -> None:
    """No further call."""


def _status(event: CloudEvent) -> int:
    return whole_number(event.extensions.get("status", ""), 200, 599) or 502
