"""`python -m adapters.offload.worker FD MEMORY`: runs codec functions that arrive over a socket, one at a time."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import resource
import signal
import socket
import sys
import traceback
from pathlib import Path
from typing import Any

from adapters.errors import InferenceError
from adapters.offload import packets
from adapters.offload.jobs import Crashed, Done, Failed, MemoryExceeded, Outcome


def main() -> int:
    channel = socket.socket(fileno=int(sys.argv[1]))
    _limit(int(sys.argv[2]))
    trim = _trimmer()
    while True:
        data, fds, _, _ = socket.recv_fds(channel, packets.SECONDS.size, 1)
        if not data or not fds:
            return 0  # the server has closed its end
        answer = packets.open_file()
        try:
            _serve(fds[0], answer, *packets.SECONDS.unpack(data))
            signal.setitimer(signal.ITIMER_PROF, 0)
            socket.send_fds(channel, [b"\1"], [answer])
        finally:
            os.close(fds[0])
            os.close(answer)
        trim(0)


def _limit(memory: int) -> None:
    os.nice(5)  # requests that are small go first
    # When memory runs out, the kernel ends the worker and not the server.
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("500")
    resource.setrlimit(resource.RLIMIT_DATA, (memory, memory))
    signal.signal(signal.SIGPROF, signal.SIG_DFL)  # ends the process, within native code too
    gc.disable()  # a job makes millions of objects and no cycles
    gc.freeze()


def _serve(question: int, answer: int, seconds: float) -> None:
    outcome = _outcome(question, seconds)
    try:
        packets.write(answer, outcome)
    except (MemoryError, OSError):
        del outcome
        os.ftruncate(answer, 0)
        packets.write(answer, MemoryExceeded())


def _outcome(question: int, seconds: float) -> Outcome:
    try:
        function, args, kwargs = packets.read(question)
        signal.setitimer(signal.ITIMER_PROF, seconds)  # a first job's imports do not count
        return Done(function(*args, **kwargs))
    except InferenceError as error:
        return Failed(type(error), vars(error))
    except MemoryError:
        return MemoryExceeded()
    except Exception:
        return Crashed(traceback.format_exc())


def _trimmer() -> Any:
    """Gives free memory back to the system, where the C library can."""
    try:
        return ctypes.CDLL(None).malloc_trim
    except AttributeError:
        return lambda _: None


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt, BrokenPipeError, ConnectionResetError):
        sys.exit(main())
