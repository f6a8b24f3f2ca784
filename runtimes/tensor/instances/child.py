"""`python -m runtimes.tensor.instances.child`: one model, without modules that it does not need.

It ends when the other end of its socket is closed, and in any case with the process that started it.
"""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import os
import resource
import signal
import socket
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

import msgspec

from runtimes.tensor.backends.registry import backend, complete_config
from runtimes.tensor.instances import frames
from runtimes.tensor.instances.frames import Arena
from runtimes.tensor.instances.quantization import loaded
from runtimes.tensor.instances.runner import Runner
from runtimes.tensor.instances.worker import Job, decode_job, encode_config, resident_bytes
from runtimes.tensor.interfaces import LoadReport, ModelFailed, ModelLoadError, RowsFailed, Tensors
from runtimes.tensor.texts import expanded
from runtimes.tensor.triton_api import process
from runtimes.tensor.triton_api.channel import RequestChannel
from runtimes.tensor.triton_api.model import TritonModel

_PR_SET_PDEATHSIG = 1


class ProcessChannel:
    """Our end of the socket, and the memory beside it."""

    def __init__(self, fd: int, inputs: int, outputs: int) -> None:
        self._socket = self.socket = socket.socket(fileno=fd)
        self._inputs = Arena(inputs)
        self._outputs = Arena(outputs)
        self._buffer = bytearray(frames.MAX_PACKET)
        self._view = memoryview(self._buffer)
        self.ended = False

    def receive(self, *, wait: bool = True) -> frames.Packet | None:
        """The next packet, with a copy of its payload; None at the end, or without a packet if `wait` is false."""
        try:
            size = self._socket.recv_into(self._buffer, 0, 0 if wait else socket.MSG_DONTWAIT)
        except BlockingIOError:
            return None
        except OSError:
            size = 0
        if not size:
            self.ended = True
            return None
        return frames.parse(bytearray(self._view[:size]), self._inputs)

    def tensors(self, kind: int, number: int, outputs: Tensors) -> None:
        self._send(frames.packed(frames.tensors_frame(kind, number, (outputs,)), self._outputs))

    def blob(self, kind: int, blob: bytes) -> None:
        self._send(frames.packed(frames.blob_frame(kind, 0, blob), self._outputs))

    def signal(self, kind: int) -> None:
        self._send(frames.signal(kind, 0))

    def _send(self, packet: bytes) -> None:
        try:
            self._socket.send(packet)
        except OSError:
            self.ended = True


class Permission:
    """Permission for each response of a stream. The first response needs none."""

    def __init__(self, channel: ProcessChannel, stream: int) -> None:
        self._channel = channel
        self._stream = stream
        self._first = True

    def given(self) -> bool:
        """Wait for permission; False if the stream was cancelled."""
        while True:
            packet = self._channel.receive(wait=not self._first)
            if packet is None:
                first, self._first = self._first, False
                return first and not self._channel.ended
            if packet.number == self._stream:  # not a late word about the one before
                return packet.kind == frames.GO_ON


class ServeJob(Protocol):
    """Loads what a job of many models needs, and serves it. `progress` is the file that both sides see."""

    def __call__(self, job: Job, channel: ProcessChannel, progress: int) -> None: ...


def main(serve: ServeJob | None = None) -> int:
    """Load and serve a model, or by `serve` a job of many models."""
    faulthandler.enable()  # where it was when it crashed goes to the log
    channel_fd, inputs, outputs, parent = (int(argument) for argument in sys.argv[1:5])
    _die_with(parent)
    for fd in (channel_fd, inputs, outputs):
        os.set_inheritable(fd, False)
    channel = ProcessChannel(channel_fd, inputs, outputs)
    order = channel.receive()
    if order is None:
        return 0
    job = decode_job(order.payload)
    try:
        _prepare(job)
        _describe(job)
        if order.kind == frames.COMPLETE:
            completed = complete_config(backend(job.backend), job.config, job.folder)
            channel.blob(frames.COMPLETED, encode_config(completed))
            return 0
        if job.description or job.members:
            process.connection = RequestChannel(channel.socket)
        if serve is not None:
            serve(job, channel, outputs)
            return 0
        runner = _load(job, channel)
    except ModelLoadError as error:
        channel.blob(frames.REFUSED, str(error).encode(errors="replace"))
        return 0
    if isinstance(runner.model, TritonModel) and process.connection is not None:
        runner.model.serve(process.connection)
    else:
        _serve(channel, runner)
    runner.close()
    return 0


def _describe(job: Job) -> None:
    """The services of the server for a model written for Triton."""
    process.description, process.folder, process.instance = job.description, job.folder, job.name


def _die_with(parent: int) -> None:
    """Have the kernel kill this process when the thread that started it ends."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(0)


def _prepare(job: Job) -> None:
    # When memory runs out, the kernel takes the model and leaves the server.
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("500")
    try:
        if job.cpus:
            os.sched_setaffinity(0, job.cpus)
        if job.memory_limit:
            resource.setrlimit(resource.RLIMIT_DATA, (job.memory_limit, job.memory_limit))
    except (OSError, ValueError) as error:
        raise ModelLoadError(f"cores {list(job.cpus)}, memory limit {job.memory_limit}: {error}") from None
    sys.path.insert(0, str(job.folder))


def _load(job: Job, channel: ProcessChannel) -> Runner:
    started = time.monotonic()
    before = resident_bytes()
    result = loaded(job)
    report(channel, started, before, result.quantization)
    return Runner(job.config, result.model, lambda text: print(text, file=sys.stderr, flush=True))


def report(channel: ProcessChannel, started: float, before: int, quantization: Mapping[str, float | str]) -> None:
    """Report that the job is loaded, since `started` and from `before` bytes of memory."""
    grown = max(0, resident_bytes() - before)
    report = LoadReport(time.monotonic() - started, grown, os.getpid(), quantization)
    channel.blob(frames.LOADED, msgspec.msgpack.encode(report))


def _serve(channel: ProcessChannel, runner: Runner) -> None:
    while (packet := channel.receive()) is not None:
        try:
            if packet.kind == frames.INFER:
                _infer(channel, runner, packet)
            elif packet.kind == frames.STREAM:
                _stream(channel, runner, packet)
        except ModelFailed as error:
            channel.blob(frames.FAILED, str(error).encode(errors="replace"))
        except frames.FrameTooLarge as error:
            channel.blob(frames.FAILED, f"the outputs cannot be sent: {error}".encode())
        except MemoryError:
            channel.blob(frames.FAILED, b"MemoryError")


def _inputs(packet: frames.Packet) -> Tensors:
    return {name: expanded(array) for name, array in frames.tensors_of(packet).items()}


def _infer(channel: ProcessChannel, runner: Runner, packet: frames.Packet) -> None:
    try:
        outputs = runner.infer(_inputs(packet), packet.number, packet.outputs)
    except RowsFailed as some:
        channel.blob(frames.ROW_ERRORS, frames.encoded_errors(some.errors))
        outputs = some.outputs
    channel.tensors(frames.OUTPUTS, 0, outputs)


def _stream(channel: ProcessChannel, runner: Runner, packet: frames.Packet) -> None:
    permission = Permission(channel, packet.number)

    def send(outputs: Tensors) -> bool:
        if not permission.given():
            return False
        channel.tensors(frames.RESPONSE, 0, outputs)
        return True

    runner.stream(_inputs(packet), send)
    channel.signal(frames.STREAMED)


if __name__ == "__main__":
    sys.exit(main())
