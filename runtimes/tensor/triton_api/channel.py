"""The model's end of the connection to its server.

Any thread may send. There is no reading thread: a thread that waits for a packet also reads the packets of others,
until its own has arrived. A model that computes and calls nothing thus costs no switch between threads.
"""

from __future__ import annotations

import os
import socket
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import msgspec

from adapters.tensors import Data
from runtimes.tensor.requests import messages
from runtimes.tensor.requests.messages import ModelMessage
from runtimes.tensor.triton_api.errors import TritonModelException

T = TypeVar("T")
_decode_reply = msgspec.msgpack.Decoder(messages.QueryReply).decode


class RequestChannel:
    """Sends and receives messages. Handlers run with the lock held and must not wait."""

    def __init__(self, connection: socket.socket) -> None:
        self.batches: deque[ModelMessage] = deque()
        """Executions that the server requests."""
        self.handlers: dict[int, Callable[[ModelMessage], None]] = {
            messages.EXECUTE: self.batches.append,
            messages.REPLY: self._reply,
        }
        self.closed = False
        """Whether the server has closed the connection."""
        self.forked = False
        """Whether this is a process that the model has forked: the connection is its parent's."""
        self._socket = connection
        self._buffer = bytearray(messages.MAX_PACKET)
        self._view = memoryview(self._buffer)
        self._changed = threading.Condition()
        self._reading = False
        self._numbers = 0
        self._replies: dict[int, messages.QueryReply] = {}
        os.register_at_fork(after_in_child=self._disown)

    def _disown(self) -> None:
        self.forked = True
        self._changed = threading.Condition()

    def number(self) -> int:
        """A new number of a message."""
        with self._changed:
            self._numbers += 1
            return self._numbers

    def send(self, kind: int, number: int, header: object, tensors: Sequence[Data] = ()) -> None:
        """Raises `TritonModelException` where the server cannot be reached."""
        if self.forked:
            raise TritonModelException("a process that the model has forked cannot reach the server")
        try:
            packet = messages.packed(kind, number, header, tensors)
        except messages.MessageTooLarge as error:
            raise TritonModelException(f"the message cannot be sent: {error}") from None
        try:
            packet.send(self._socket)
        except OSError:
            self.closed = True
        finally:
            packet.close()

    def wait(self, ready: Callable[[], T | None]) -> T | None:
        """The first value of `ready` that is not None; None when the connection is closed. `ready` runs with the lock
        held."""
        with self._changed:
            while (value := ready()) is None and not self.closed:
                if self._reading:
                    self._changed.wait()
                else:
                    self._read(0)
            return value

    def poll(self) -> None:
        """Handle the packets that have arrived, unless another thread does."""
        with self._changed:
            while not self._reading and not self.closed and self._read(socket.MSG_DONTWAIT):
                pass

    def _read(self, flags: int) -> bool:
        """Handle one packet; False without a packet."""
        self._reading = True
        self._changed.release()
        message: ModelMessage | None = None
        try:
            size, ancillary, _, _ = self._socket.recvmsg_into([self._buffer], 256, flags)
            if size:
                message = messages.received(bytearray(self._view[:size]), messages.files_of(ancillary))
        except BlockingIOError:
            size = -1
        except OSError:
            size = 0
        finally:
            self._changed.acquire()
            self._reading = False
        if not size:
            self.closed = True
        elif message is not None and (handler := self.handlers.get(message.kind)) is not None:
            handler(message)
        self._changed.notify_all()
        return message is not None

    # ── questions to the server ───────────────────────────────────────────────────────────────────────

    def query(self, operation: str, **arguments: Any) -> Any:
        """The server's reply. Raises `TritonModelException` with its error."""
        number = self.number()
        self.send(messages.QUERY, number, messages.Query(operation, arguments))
        reply = self.wait(lambda: self._replies.pop(number, None))
        if reply is None:
            raise TritonModelException("the server has closed the connection")
        if reply.error:
            raise TritonModelException(reply.error)
        return reply.value

    def notify(self, operation: str, **arguments: Any) -> None:
        """Send an order without a reply. Does not wait."""
        self.send(messages.QUERY, 0, messages.Query(operation, arguments))

    def _reply(self, message: ModelMessage) -> None:
        self._replies[message.number] = _decode_reply(message.header)
