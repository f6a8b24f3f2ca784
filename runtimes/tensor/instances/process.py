"""A copy of a model in a separate process, which may die, hang or exhaust its memory without harm to others."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from runtimes.tensor.configuration.model_config import ModelConfig
from runtimes.tensor.instances import frames
from runtimes.tensor.instances.child_process import ChildProcess
from runtimes.tensor.instances.worker import LOAD_SECONDS, Job, Listener, decode_config, encode_job
from runtimes.tensor.interfaces import Batch, Device, LoadReport, ModelFailed, ModelLoadError, RowsFailed, Tensors

ELSEWHERE: Final = 4 * 1024 * 1024
"""Bytes that are copied on a thread, so that the loop does not wait for them."""
_decode_report = msgspec.msgpack.Decoder(LoadReport).decode


class ProcessWorker:
    """The loop's side of one process. `listener` gets no event before the model is loaded."""

    def __init__(self, job: Job, listener: Listener | None) -> None:
        self._job = job
        self._listener = listener
        self._loop = asyncio.get_running_loop()
        self._child: ChildProcess | None = None
        self._answer: asyncio.Future[bytes] | None = None
        """The future of the report on the job, while the process starts."""
        self._row_errors: dict[int, str] = {}
        self._stream = 0
        self._copying = False
        """Large outputs are copied, and later packets wait in `_late`."""
        self._late: deque[bytes] = deque()
        self._gone = False

    async def load(self) -> LoadReport:
        return _decode_report(await self._begin(frames.LOAD))

    async def complete(self) -> ModelConfig:
        """The job's configuration completed from the model's file. The process has ended on return."""
        try:
            return decode_config(await self._begin(frames.COMPLETE))
        finally:
            await self.aclose()

    async def _begin(self, kind: int) -> bytes:
        """Start the process with its job. Returns its report."""
        self._answer = self._loop.create_future()
        child = self._start_child()
        self._child = child
        try:
            self._send(frames.packed(frames.blob_frame(kind, 0, encode_job(self._job)), child.inputs))
            async with asyncio.timeout(LOAD_SECONDS):
                return await self._answer
        except BaseException as error:
            self.abandon()
            await asyncio.wait([child.gone])
            if isinstance(error, TimeoutError):
                raise ModelLoadError(f"loading took longer than {LOAD_SECONDS:g} s") from None
            raise
        finally:
            self._answer = None

    def _start_child(self) -> ChildProcess:
        return ChildProcess(self._job, self._received, self._exited)

    def submit(self, batch: Batch) -> None:
        self._send_tensors(frames.INFER, sum(batch.rows), batch.members, batch.outputs)

    def submit_stream(self, inputs: Tensors) -> None:
        self._stream += 1
        self._send_tensors(frames.STREAM, self._stream, (inputs,))

    def go_on(self) -> None:
        self._send(frames.signal(frames.GO_ON, self._stream))

    def stop(self) -> None:
        self._send(frames.signal(frames.STOP, self._stream))

    def abandon(self) -> None:
        self._gone = True
        if self._child is not None:
            self._child.kill()

    async def aclose(self) -> None:
        self._gone = True
        if self._child is not None:
            await self._child.aclose()

    def _send_tensors(self, kind: int, number: int, members: Sequence[Tensors], outputs: int = 0) -> None:
        assert self._child is not None
        frame = frames.tensors_frame(kind, number, members)
        if outputs:
            frame = frame._replace(outputs=outputs)
        if frame.size > ELSEWHERE:
            writing = self._loop.run_in_executor(None, frames.packed, frame, self._child.inputs)
            writing.add_done_callback(self._written)
            return
        try:
            packet = frames.packed(frame, self._child.inputs)
        except frames.FrameTooLarge as error:
            self._too_large(error)
        else:
            self._send(packet)

    def _written(self, writing: asyncio.Future[bytes]) -> None:
        """Send the packet after large tensors were written to the arena."""
        error = writing.exception()
        if self._gone:
            return
        if error is None:
            self._send(writing.result())
        else:
            self._too_large(error)

    def _too_large(self, error: BaseException) -> None:
        assert self._listener is not None
        self._listener.answered(ModelFailed(f"the batch cannot be sent to the model's process: {error}"))

    def _send(self, packet: bytes) -> None:
        assert self._child is not None
        try:
            self._child.send(packet)
        except OSError:
            self._child.kill()  # it is ending, or does not read its packets

    def _received(self, data: bytes) -> None:
        """Handle a packet from the process."""
        assert self._child is not None
        if self._copying:
            self._late.append(data)
            return
        packet = frames.parse(data, self._child.outputs)
        if self._answer is not None:
            self._settle(packet)
        elif self._gone or self._listener is None:
            pass
        elif packet.kind in (frames.OUTPUTS, frames.RESPONSE):
            if packet.shared and len(packet.payload) > ELSEWHERE:
                self._copying = True
                copying = self._loop.run_in_executor(None, frames.owned, packet, self._child.outputs)
                copying.add_done_callback(self._copied)
            else:
                self._outputs(frames.owned(packet, self._child.outputs))
        elif packet.kind == frames.ROW_ERRORS:
            self._row_errors = frames.decoded_errors(packet.payload)
        elif packet.kind == frames.FAILED:
            self._listener.answered(ModelFailed(str(packet.payload, "utf-8", "replace")))
        elif packet.kind == frames.STREAMED:
            self._listener.streamed()

    def _copied(self, copying: asyncio.Future[frames.Packet]) -> None:
        """Handle outputs that were copied from the arena."""
        self._copying = False
        error = copying.exception()
        if error is None:
            self._outputs(copying.result())
        elif not self._gone and self._listener is not None:
            self._listener.answered(ModelFailed(f"no memory for the outputs: {error}"))
        while self._late and not self._copying:
            self._received(self._late.popleft())

    def _outputs(self, packet: frames.Packet) -> None:
        if self._gone or self._listener is None:
            return
        outputs = frames.tensors_of(packet)
        if packet.kind == frames.RESPONSE:
            self._listener.responded(outputs)
            return
        if self._row_errors:
            errors, self._row_errors = self._row_errors, {}
            self._listener.answered(RowsFailed(outputs, errors))
        else:
            self._listener.answered(outputs)

    def _settle(self, packet: frames.Packet) -> None:
        """Set the result of the job."""
        assert self._answer is not None
        if self._answer.done():
            return
        if packet.kind == frames.REFUSED:
            self._answer.set_exception(ModelLoadError(str(packet.payload, "utf-8", "replace")))
        else:
            self._answer.set_result(bytes(packet.payload))

    def _exited(self, how: str) -> None:
        assert self._child is not None
        if self._answer is not None:
            if not self._answer.done():
                last = "; ".join(self._child.log.last)
                suffix = f"; its last line: {last}" if last else ""
                self._answer.set_exception(ModelLoadError(f"its process {how} while it loaded the model{suffix}"))
        elif not self._gone and self._listener is not None:
            self._gone = True
            self._listener.lost(how)


async def complete_in_process(config: ModelConfig, folder: Path, description: str = "") -> ModelConfig:
    """`Backend.complete` where it may fail, hang or die without harm."""
    job = Job(f"{config.name}_look", config.backend, config, folder, Device(threads=1), description=description)
    return await ProcessWorker(job, None).complete()
