"""The life of a runtime's process: its imports, log and listeners, and its stop by a signal or after its parent."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import stat
import sys
import threading
import time
from collections.abc import Callable, Collection, Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import uvloop

from adapters.process import raise_limit
from config.installing import installing

if TYPE_CHECKING:
    from adapters.http1.listeners import Accepting

T = TypeVar("T")
log = logging.getLogger(__name__)


class CannotStart(Exception):
    """The reason, in one line."""


class OneLine(logging.Formatter):
    """One line for each record, tracebacks included, as log collectors expect."""

    def head(self, record: logging.LogRecord) -> str:
        """The beginning of the line, before the message."""
        return f"{time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime(record.created))} {record.levelname} {record.name} "

    def format(self, record: logging.LogRecord) -> str:
        return (self.head(record) + super().format(record)).replace("\n", "\\n")


@contextmanager
def importing(extra: str, packages: Collection[str]) -> Iterator[None]:
    """Disables garbage collection for imports: it takes a seventh of their time and frees nothing.

    Exits with the command that installs the `extra` if one of its `packages` is missing.
    """
    gc.disable()
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name not in packages:
            raise
        print(f"{error.name} is not installed: {installing(extra)}", file=sys.stderr)
        raise SystemExit(1) from None
    finally:
        gc.enable()


def serve(serving: Coroutine[object, object, int]) -> int:
    """Run a server to its end, with the descriptors that the system allows. Returns the exit status."""
    raise_limit()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(serving)


async def listen(
    server: Accepting[Any], socket: Path | None, host: str, port: int | None, prefix: str, scheme: str = "http://"
) -> None:
    """Listen on the socket and the port that are given, and log each address. Raises `CannotStart`."""
    try:
        if socket is not None:
            await server.listen_unix(socket)
            log.info("%s on unix:%s", prefix, socket)
        if port is not None:
            host, port = await server.listen_tcp(host, port)
            log.info("%s on %s%s:%d", prefix, scheme, f"[{host}]" if ":" in host else host, port)
    except OSError as error:
        raise CannotStart(f"cannot listen: {error}") from None


async def precedes(work: asyncio.Future[Any], stop: asyncio.Event) -> bool:
    """Whether `work` ends before `stop` is set. Work that does not goes on."""
    stopping = asyncio.ensure_future(stop.wait())
    await asyncio.wait((work, stopping), return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    return work.done()


def in_thread(work: Callable[[], T], name: str) -> asyncio.Future[T]:
    """Run `work` in a daemon thread: the process does not wait for it when it stops."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()

    def run() -> None:
        try:
            result = work()
        except Exception as error:
            loop.call_soon_threadsafe(done.set_exception, error)
        else:
            loop.call_soon_threadsafe(done.set_result, result)

    threading.Thread(target=run, name=name, daemon=True).start()
    return done


def stop_signal(*, exit_with_parent: bool) -> asyncio.Event:
    """An event set by SIGTERM, SIGINT and, if requested, the end of the parent. Raises `CannotStart`."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    if exit_with_parent:
        _watch_parent(loop, stop)
    return stop


def _watch_parent(loop: asyncio.AbstractEventLoop, stop: asyncio.Event) -> None:
    """The parent holds the other end of stdin; however it dies, the system closes that."""
    stdin = sys.stdin.fileno()
    mode = os.fstat(stdin).st_mode
    if not (stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)):
        raise CannotStart("--exit-with-parent needs stdin to be a pipe that the parent keeps open")

    def readable() -> None:
        if not os.read(stdin, 4096):
            loop.remove_reader(stdin)
            stop.set()

    loop.add_reader(stdin, readable)
