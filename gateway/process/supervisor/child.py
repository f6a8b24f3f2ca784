"""The entry point of a worker process: `headrace worker`, started by the supervisor."""

import asyncio
import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Callable

import uvloop

from adapters import process as temporary
from gateway.errors import StartError
from gateway.process.signals import until
from gateway.process.supervisor.control import ControlSocket
from gateway.process.supervisor.messages import StartMessage, StartReport, decode, encode
from gateway.process.supervisor.worker import Worker
from gateway.telemetry.process_log import begin_log, configure_log

LAST_SECONDS = 15.0
"""Time beyond its drain after which an orphaned worker exits, even if its event loop is stuck."""


def run() -> int:
    """Read the start message from standard input and serve. Returns the exit status."""
    message = decode(sys.stdin.buffer.readline(), StartMessage)
    begin_log(f"worker-{message.slot}")
    return uvloop.run(_work(message))


async def _work(message: StartMessage) -> int:
    leave, cut = asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()

    def on_terminate() -> None:
        (cut if leave.is_set() else leave).set()

    loop.add_signal_handler(signal.SIGTERM, on_terminate)
    loop.add_signal_handler(signal.SIGINT, cut.set)
    try:
        worker = Worker(message)
        configure_log(worker.plane.config.log)
        _when_orphaned(lambda: loop.call_soon_threadsafe(leave.set), worker.plane.config.drain + LAST_SECONDS)
        control = await _start(worker, message)
    except (StartError, ValueError) as error:
        _report(message.report, StartReport(str(error)))
        return 2
    temporary.freeze_heap()
    _report(message.report, StartReport())
    if await until(cut, leave.wait()):
        await until(cut, worker.drain())
    await control.aclose()
    await worker.aclose()
    return 0


async def _start(worker: Worker, message: StartMessage) -> ControlSocket:
    control = ControlSocket(worker)
    try:
        await worker.start()
        await control.open(message.control)
    except BaseException:
        await control.aclose()
        await worker.aclose()
        raise
    return control


def _report(fd: int, report: StartReport) -> None:
    with open(fd, "wb") as pipe:
        pipe.write(encode(report) + b"\n")


def _when_orphaned(leave: Callable[[], object], seconds: float) -> None:
    """Call `leave` when standard input closes, as after every end of the supervisor, and exit after `seconds`.

    A thread, so that it works even if the event loop is stuck.
    """

    def watch() -> None:
        # Not through `sys.stdin`: a blocked read holds its lock, and the interpreter aborts at exit without the lock.
        while os.read(descriptor, 4096):
            continue
        with contextlib.suppress(RuntimeError):  # the loop is closed: the process is exiting already
            leave()
        time.sleep(seconds)
        os._exit(1)

    descriptor = sys.stdin.fileno()
    threading.Thread(target=watch, name="orphan watch", daemon=True).start()
