"""A response whose body arrives in messages."""

import asyncio
from collections.abc import Awaitable, Callable

from adapters.brokers.base import BrokerDelivery
from adapters.errors import BackendError, DeadlineError, InferenceError, TransportError, UpstreamSilent
from adapters.http1.client import MAX_ANSWER, ClientResponse
from adapters.http1.exchange import Forward
from adapters.http1.message import Headers
from adapters.types import Deadline
from adapters.wire import sse
from adapters.wire.cloudevents import CloudEvent
from adapters.wire.decoding import whole_number

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
