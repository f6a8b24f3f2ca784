"""What every runtime does as a process: it stops when it is told to, and when its parent is gone."""

from __future__ import annotations

import asyncio
import os
import signal
import stat
import sys


class CannotStart(Exception):
    """The reason, in one line."""


def stop_signal(*, exit_with_parent: bool) -> asyncio.Event:
    """Set by SIGTERM, SIGINT and, if so asked, the end of the parent. Raises `CannotStart`."""
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
