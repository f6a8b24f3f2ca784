"""Sends packets to a process, in order. Packets wait while the socket is full."""

from __future__ import annotations

import asyncio
import socket
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final

from adapters.tensors import Data
from runtimes.tensor.requests import messages
from runtimes.tensor.requests.messages import Outgoing

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
