"""The life of a runtime's process: its imports, its stop by a signal, and its stop after its parent's end."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import stat
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

T = TypeVar("T")


class CannotStart(Exception):
    """The reason, in one line."""


@contextmanager
def importing() -> Iterator[None]:
    """Disables garbage collection for imports: it takes a seventh of their time and frees nothing."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


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
