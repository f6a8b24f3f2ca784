"""What the receiving halves make of a sequence of pieces: everything that the rest of the gateway can observe."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, cast

from adapters.errors import InferenceError
from adapters.http1.budget import Budget
from adapters.http1.exchange import Exchange
from adapters.http1.host import Host, Limits
from adapters.http1.incoming import Incoming
from adapters.http1.message import encode_fields
from adapters.http1.receiving import RequestReceiver
from adapters.http1.sweeper import NEVER
from adapters.types import Deadline

LIMITS = Limits(max_head=600, max_headers=8, max_body=70, max_pipelined=2, uploads={b"/": 20})
Outcome = list[object]


class Loop:
    """A loop whose time stands still. `turn` runs the scheduled callbacks."""

    def __init__(self) -> None:
        self._scheduled: list[Callable[[], None]] = []

    def time(self) -> float:
        return 0.0

    def call_soon(self, callback: Callable[[], None]) -> None:
        self._scheduled.append(callback)

    def turn(self) -> None:
        while self._scheduled:
            self._scheduled.pop(0)()


class Transport:
    """A transport that records whether it was aborted."""

    def __init__(self) -> None:
        self.aborted = False

    def is_closing(self) -> bool:
        return self.aborted

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...

    def write(self, data: bytes) -> None: ...

    def abort(self) -> None:
        self.aborted = True


class Server:
    """As much of a server as the receiving half uses."""

    def __init__(self, loop: Loop) -> None:
        self.loop = loop
        self.limits = LIMITS
        self.budget = Budget(1024 * 1024)


class Receiver(RequestReceiver):
    """A receiving half whose requests are answered at once, when `answer` is called."""

    __slots__ = ("refused",)

    def __init__(self, loop: Loop) -> None:
        super().__init__(cast(Host, Server(loop)))
        self._transport = cast(asyncio.Transport, Transport())
        self.peer = "127.0.0.1"
        self.refused: Outcome = []

    def _begin_answering(self) -> None: ...

    def _refuse(self, status: int, code: str, message: str) -> None:
        self._deaf = True
        self.refused.append((status, code, message, tuple(self._fields)))

    def answer(self) -> None:
        """End the exchanges of all complete requests, as a connection does."""
        while self._queue and (self._queue[0].complete or self._queue[0].error is not None):
            if not self._queue.pop(0).keep_alive:
                self._deaf = True
                return
        self._resume_reading()
        if not self._queue and self._answering:
            self._answering = False
            self._enter("head" if self._in_head else "idle", 1.0)

    @property
    def seen(self) -> Outcome:
        """The state after a piece."""
        return [self.phase, self.deadline, self._deaf, self._in_head, *self.refused, *map(_request, self._queue)]


def _error(error: InferenceError | None) -> object:
    return None if error is None else (type(error), error.code, error.message)


def _request(incoming: Incoming) -> object:
    return (
        incoming.method, incoming.target, incoming.query, tuple(incoming.headers.raw.items()), incoming.http11,
        incoming.keep_alive, incoming.expects_continue, incoming.length, incoming.size, incoming.limit,
        incoming.complete, _error(incoming.error), b"".join(incoming.body),
    )  # fmt: skip


def of_requests(pieces: list[bytes]) -> Outcome:
    """The outcome of received requests, after each piece."""
    loop = Loop()
    receiver = Receiver(loop)
    outcome: Outcome = []
    for piece in pieces:
        receiver.data_received(piece)
        loop.turn()
        outcome.append(receiver.seen)
        receiver.answer()
        loop.turn()
    return outcome


def of_responses(pieces: list[bytes]) -> Outcome:
    """The outcome of received responses, after each piece. A connection that may be used again has another request."""
    loop = Loop()
    lost: list[Any] = []
    exchange = Exchange(cast(asyncio.AbstractEventLoop, loop), lost.append)
    exchange._transport = cast(asyncio.Transport, transport := Transport())
    exchange._begin(Deadline(NEVER, NEVER, NEVER))
    outcome: Outcome = []
    body = b""
    for piece in pieces:
        exchange.data_received(piece)
        loop.turn()
        while exchange._chunks:
            body += b"".join(exchange._chunks)
            exchange._chunks.clear()
            exchange._size = 0
            exchange._resume_reading()
            loop.turn()
        outcome.append(
            (
                exchange.answered, exchange.status, tuple(exchange._fields.items()), exchange._head_done,
                exchange._framed, exchange._keep_alive, exchange.complete, _error(exchange._error), exchange._deaf,
                transport.aborted, exchange.reusable, body,
            )
        )  # fmt: skip
        if transport.aborted:
            break
        if exchange.reusable:
            body = b""
            exchange._begin(Deadline(NEVER, NEVER, NEVER))
    return outcome


def of_fields(fields: Sequence[tuple[str, str]]) -> Outcome:
    """The bytes of encoded fields, or the error; the same for a tuple of them."""
    outcome: Outcome = []
    for given in (fields, tuple(fields)):
        try:
            outcome.append(encode_fields(given))
        except ValueError as error:
            outcome.append(str(error))
    return outcome
