"""The access log: one JSON line for each request, written in the background."""

import asyncio
import logging
import os
import select
import stat
import time
from collections.abc import Iterator

import msgspec

from adapters.call import StepTrace
from adapters.reason import Fact
from adapters.types import Usage
from config.schema.identity import ROLES, USER
from gateway.telemetry.events import cached, times
from gateway.telemetry.record import Record

FLUSH_SECONDS = 0.2
MAX_PENDING = 100_000
STDOUT = 1

_log = logging.getLogger(__name__)
_encode = msgspec.json.Encoder().encode


class StepLine(msgspec.Struct, omit_defaults=True, gc=False):
    """One step of a pipeline in the log line of its request."""

    step: str
    outcome: str
    ms: float
    pipeline: str | None = None
    """The name of an inner pipeline."""
    endpoint: str = ""
    error: str = ""
    prompt_tokens: int = 0
    completion_tokens: int = 0
    rows: int = 0
    device_ms: float = 0.0
    cost: str | None = None


class GuardLine(msgspec.Struct, gc=False):
    """What one guard has found in a request or its answer. The text is not recorded."""

    guard: str
    action: str
    mode: str
    on: str
    count: int


class Line(msgspec.Struct, omit_defaults=True, gc=False):
    """The log line of a request. Fields that do not apply are omitted."""

    time: str
    request_id: str
    client: str
    tenant: str
    key: str
    operation: str
    model: str
    pool: str
    endpoint: str
    attempts: int
    stream: bool
    status: int
    duration_ms: float
    team: str = ""
    roles: list[str] | None = None
    arm: str | None = None
    first_chunk_ms: float | None = None
    queue_ms: float | None = None
    overhead_ms: float | None = None
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    usage_exact: bool | None = None
    rows: int | None = None
    device_ms: float | None = None
    cost: str | None = None
    shadow_limits: list[str] | None = None
    hedged: int | None = None
    resumed: int | None = None
    cache: str | None = None
    error: str | None = None
    code: str | None = None
    detail: str | None = None
    reason: dict[str, Fact] | None = None
    """Why the request was refused."""
    guards: list[GuardLine] | None = None
    """What guards have found."""
    trace_id: str = ""
    """The trace of the request, if its spans are exported."""
    steps: list[StepLine] | None = None


class AccessLog:
    """Collects lines in memory; a thread writes them, so that a slow disk delays no request.

    With `MAX_PENDING` unwritten lines, new lines are dropped and counted in `dropped`. A file that was renamed or
    removed is opened again before the next lines, in each process by itself: no signal is needed.
    """

    def __init__(self, to: str) -> None:
        self._own = to != "stdout"
        self._path = os.path.abspath(to)
        self._fd = _opened(to) if self._own else STDOUT
        self._is_file = stat.S_ISREG(os.fstat(self._fd).st_mode)
        self._is_gone = False
        """Whether the name had no file before the last lines."""
        self._lines: list[bytes] = []
        self._flushing: asyncio.Task[None] | None = None
        self._writing = asyncio.Lock()
        self._second = (0, "")
        self.dropped = 0
        self._lost = 0
        """Lines lost since the last written line."""
        self._torn = False
        self._is_refused = False
        """Whether the file of the name could not be opened again."""

    def write(self, record: Record) -> None:
        """Add the line of a request that has ended."""
        if len(self._lines) >= MAX_PENDING:
            self.dropped += 1
            return
        self._lines.append(_encode(self._line(record)))
        if self._flushing is None:
            self._flushing = asyncio.get_running_loop().create_task(self._flush_soon())

    def _line(self, record: Record) -> Line:
        trace, started, usage, error = record.trace, record.started, record.usage, record.error
        line = Line(
            self._timestamp(record.time),
            record.request_id,
            record.client,
            record.tenant,
            record.key,
            record.operation,
            record.model,
            record.pool,
            record.endpoint,
            len(trace.attempts),
            record.stream,
            record.status,
            round((record.ended - started) * 1000, 2),
            record.team,
            None if record.roles is USER else _authority(record.roles),
            record.arm,
        )
        line.trace_id = record.exported
        if trace.first_chunk:
            line.first_chunk_ms = round((trace.first_chunk - started) * 1000, 2)
            line.overhead_ms = round(record.overhead * 1000, 3)
        if trace.queue_seconds:
            line.queue_ms = round(trace.queue_seconds * 1000, 2)
        if usage is not None:
            line.prompt_tokens, line.completion_tokens = usage.prompt_tokens, usage.completion_tokens
            line.usage_exact = usage.exact
            if usage.rows or usage.device_ms:
                line.rows, line.device_ms = usage.rows or None, round(usage.device_ms, 3) or None
        if record.cost is not None:
            line.cost = str(record.cost)
        if record.shadowed:
            line.shadow_limits = [f"{unit} per {per}" for unit, per in record.shadowed]
        if events := trace.events:
            line.hedged, line.resumed, line.cache = times(events, "hedge"), times(events, "resume"), cached(events)
        if error is not None:
            line.error, line.code, line.detail = error.kind, error.code, error.detail or None
        if record.reason is not None:
            line.reason = record.reason.describe()
        if record.guards:
            line.guards = [GuardLine(*key, count) for key, count in record.guards.items()]
        if trace.steps:
            line.steps = [_step(step, record.model) for step in trace.steps]
        return line

    def _timestamp(self, now: float) -> str:
        """RFC 3339, UTC, to the millisecond; the second is formatted once."""
        second = int(now)
        if second != self._second[0]:
            self._second = (second, time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(second)))
        return f"{self._second[1]}.{int((now - second) * 1000):03d}Z"

    async def _flush_soon(self) -> None:
        await asyncio.sleep(FLUSH_SECONDS)
        self._flushing = None
        await self._flush()

    async def _flush(self) -> None:
        """Write the lines, one write at a time: lines remain in order, and the file is not closed during a write."""
        async with self._writing:
            lines, self._lines = self._lines, []
            if lines:
                await asyncio.to_thread(self._write_out, lines)

    def _follow_rotation(self) -> None:
        """Open the file of the name again if it is another one.

        Without a file of the name, one more batch goes to the renamed one: the program that rotates makes the new file
        with the owner and the mode of its choice.
        """
        try:
            named = os.stat(self._path)
        except FileNotFoundError:
            if not self._is_gone:
                self._is_gone = True
                return
        except OSError:
            return
        else:
            current = os.fstat(self._fd)
            if (named.st_dev, named.st_ino) == (current.st_dev, current.st_ino):
                self._is_gone = False
                return
        try:
            new = _opened(self._path)
        except OSError as error:
            if not self._is_refused:
                _log.warning("access log: lines go to the renamed file: %s: %s", self._path, error.strerror)
            self._is_refused = True
            return
        os.close(self._fd)
        self._fd, self._is_gone, self._is_refused, self._torn = new, False, False, False

    def _write_out(self, lines: list[bytes]) -> None:
        """Write lines, in a thread. The start and the end of a loss are logged."""
        if self._own and self._is_file:
            self._follow_rotation()
        written = 0
        try:
            for batch in [lines] if self._is_file else _atomic_batches(lines):
                self._write_batch(batch)
                written += len(batch)
        except OSError as error:
            lost = len(lines) - written
            self.dropped += lost
            if not self._lost:
                _log.warning("access log: lines are lost: %s", error)
            self._lost += lost
        else:
            if self._lost:
                _log.warning("access log: written again; %d lines were lost", self._lost)
                self._lost = 0

    def _write_batch(self, batch: list[bytes]) -> None:
        """Write a batch. A truncated line is ended before the next line begins. Raises OSError."""
        data = memoryview((b"\n" if self._torn else b"") + b"\n".join(batch) + b"\n")
        while data:
            count = os.write(self._fd, data)
            self._torn = data[count - 1] != ord("\n")
            data = data[count:]

    async def aclose(self) -> None:
        """Write the remaining lines and close the file."""
        if self._flushing is not None:
            self._flushing.cancel()
        await self._flush()
        if self._own:
            os.close(self._fd)


def _opened(path: str) -> int:
    """Unbuffered and appending: nothing is retained if the disk is full, and a rotated file may be truncated."""
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o640)


def _step(step: StepTrace, model: str) -> StepLine:
    usage = step.usage or Usage()
    return StepLine(
        step.name,
        step.outcome,
        round(step.seconds * 1000, 2),
        step.pipeline if step.pipeline != model else None,
        step.endpoint,
        step.error,
        usage.prompt_tokens,
        usage.completion_tokens,
        usage.rows,
        round(usage.device_ms, 3),
        None if step.cost is None else str(step.cost),
    )


def _authority(roles: frozenset[str]) -> list[str] | None:
    """The roles beyond `user` that the gateway uses: an issuer may name a hundred groups."""
    logged = ROLES & roles
    return sorted(logged) if logged != USER else None


def _atomic_batches(lines: list[bytes]) -> Iterator[list[bytes]]:
    """Batches that a pipe writes atomically: several workers share a pipe, and the kernel interleaves longer writes."""
    batch: list[bytes] = []
    size = 0
    for line in lines:
        if batch and size + len(line) + 1 > select.PIPE_BUF:
            yield batch
            batch, size = [], 0
        batch.append(line)
        size += len(line) + 1
    yield batch
