"""The cost of each turn of the event loop, and floods from outside the loop."""

import asyncio
import contextlib
import gc
import socket
import threading
import time
from collections import Counter
from collections.abc import Iterator
from types import TracebackType

from tests.support.pace import slowness


def most_seconds() -> float:
    """CPU time of a turn above which a connection delays the others: 50 ms, and more on a slower machine."""
    return 0.05 * slowness()


class Turns:
    """Counts the turns of the running loop and takes the CPU time of each: a busy machine makes none longer.

    The objects of earlier tests are out of the garbage collector's sight meanwhile: a full collection of the test
    process, which a server does not have, takes longer than the bound.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._handle: asyncio.Handle | None = None
        self._since = 0.0
        self.number = 0
        self.longest = 0.0
        self.events: Counter[int] = Counter()
        """How often `note` was called, by turn."""

    def __enter__(self) -> "Turns":
        gc.freeze()
        self._since = time.thread_time()
        self._handle = self._loop.call_soon(self._tick)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        assert self._handle is not None
        self._handle.cancel()
        gc.unfreeze()

    def _tick(self) -> None:
        now = time.thread_time()
        self.longest = max(self.longest, now - self._since)
        self._since = now
        self.number += 1
        self._handle = self._loop.call_soon(self._tick)

    def note(self) -> None:
        """Something happens in this turn."""
        self.events[self.number] += 1

    @property
    def busiest(self) -> int:
        """The most events of one turn."""
        return max(self.events.values(), default=0)


@contextlib.contextmanager
def flood(port: int, data: bytes) -> Iterator[threading.Thread]:
    """Send `data` on a connection of its own, from threads, while all that the server answers is read."""
    client = socket.create_connection(("127.0.0.1", port))

    def send() -> None:
        with contextlib.suppress(OSError):
            client.sendall(data)

    def read() -> None:
        with contextlib.suppress(OSError):
            while client.recv(2**20):
                pass

    threads = [threading.Thread(target=work) for work in (send, read)]
    for thread in threads:
        thread.start()
    try:
        yield threads[0]
    finally:
        with contextlib.suppress(OSError):
            client.shutdown(socket.SHUT_RDWR)
        client.close()
        for thread in threads:
            thread.join()
