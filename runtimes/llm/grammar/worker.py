"""Builds each grammar in a separate process, within limits: the program that `sandbox` starts.

    python -m runtimes.llm.grammar.worker FD [FD …]

Each FD is a connection to the runtime and takes one grammar at a time. The first message on the first one is the
vocabulary. It is read once, and the process that builds a grammar is a fork that shares it. Such a process limits
itself and is ended by the kernel, so that nothing has to watch it. Nothing but llguidance is loaded here.
"""

import gc
import os
import resource
import signal
import socket
import struct
import sys
from contextlib import suppress
from typing import Literal

import msgspec
from llguidance import LLTokenizer

from runtimes.llm.grammar.build import CannotBuild, Kind, Vocabulary, build

LENGTH = struct.Struct("<I")
STACK_BYTES = 4 << 20
"""Less than a thread of the runtime has, so that no grammar that passes here overflows the stack there."""
NICENESS = 10
_OUT_OF_MEMORY = 3


class GrammarJob(msgspec.Struct, frozen=True):
    """A grammar, and its limits: seconds of processor time, seconds of time, bytes of memory."""

    kind: Kind
    text: str
    cpu_seconds: float
    seconds: float
    memory: int


class Outcome(msgspec.Struct, frozen=True):
    """`end` is the end of the build: completed, valid or not, or the limit that ended it. `memory` is in bytes."""

    end: Literal["itself", "cpu", "time", "memory", "crash"]
    memory: int = 0


def main(numbers: list[str]) -> None:
    """Serve each connection in a process until the runtime closes it."""
    connections = [socket.socket(fileno=int(number)) for number in numbers]
    os.nice(NICENESS)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    vocabulary = msgspec.msgpack.decode(_receive(connections[0]), type=Vocabulary)
    tokenizer = vocabulary.tokenizer()
    gc.freeze()
    for place, connection in enumerate(connections[1:], 1):
        if os.fork() == 0:
            for other in connections[:place] + connections[place + 1 :]:
                other.close()
            _serve(connection, tokenizer)
            return
    for connection in connections[1:]:
        connection.close()
    _serve(connections[0], tokenizer)


def _serve(connection: socket.socket, tokenizer: LLTokenizer) -> None:
    with suppress(EOFError, ConnectionError):
        while True:
            job = msgspec.msgpack.decode(_receive(connection), type=GrammarJob)
            connection.sendall(framed(_outcome(job, tokenizer)))


def _outcome(job: GrammarJob, tokenizer: LLTokenizer) -> Outcome:
    before = _sizes()[1]
    if (pid := os.fork()) == 0:
        os._exit(_build_within(job, tokenizer))
    _, status, usage = os.wait4(pid, 0)
    if status == 0:
        return Outcome("itself", max(usage.ru_maxrss * 1024 - before, 0))
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        if number == signal.SIGPROF:
            return Outcome("cpu")
        if number == signal.SIGALRM:
            return Outcome("time")
        if number == signal.SIGSEGV:
            return Outcome("crash")
    return Outcome("memory")  # Rust aborts, and the kernel kills, a process that has none


def _build_within(job: GrammarJob, tokenizer: LLTokenizer) -> int:
    """The exit status of the fork."""
    resource.setrlimit(resource.RLIMIT_STACK, (STACK_BYTES, STACK_BYTES))
    if virtual := _sizes()[0]:
        resource.setrlimit(resource.RLIMIT_AS, (virtual + job.memory, virtual + job.memory))
    signal.setitimer(signal.ITIMER_PROF, job.cpu_seconds)
    signal.setitimer(signal.ITIMER_REAL, job.seconds)
    try:
        build(tokenizer, job.kind, job.text)
    except CannotBuild:
        return 0
    except BaseException:  # a panic of Rust is no Exception
        return _OUT_OF_MEMORY
    return 0


def framed(message: msgspec.Struct) -> bytes:
    """The form that a connection carries."""
    data = msgspec.msgpack.encode(message)
    return LENGTH.pack(len(data)) + data


def _receive(connection: socket.socket) -> bytes:
    """Raises EOFError at the end."""
    (size,) = LENGTH.unpack(_exactly(connection, LENGTH.size))
    return _exactly(connection, size)


def _exactly(connection: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        if not (more := connection.recv(min(size - len(data), 1 << 20))):
            raise EOFError
        data += more
    return bytes(data)


def _sizes() -> tuple[int, int]:
    """The memory of this process in bytes, virtual and resident (proc_pid_statm(5)); 0 if not reported."""
    try:
        with open("/proc/self/statm") as file:
            virtual, resident, *_ = [int(pages) * resource.getpagesize() for pages in file.read().split()]
    except OSError:
        return 0, 0
    return virtual, resident


if __name__ == "__main__":
    main(sys.argv[1:])
