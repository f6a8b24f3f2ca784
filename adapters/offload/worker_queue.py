"""One worker process, the jobs that wait for it, and the thread that passes them on."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any, Final, ParamSpec, TypeVar

from adapters.errors import CapacityError, InferenceError, LimitExceeded
from adapters.offload.jobs import (
    BODY,
    CodecCall,
    CodecJob,
    Cost,
    Crashed,
    Done,
    Failed,
    MemoryExceeded,
    Outcome,
    TimeExceeded,
)
from adapters.offload.process import CodecWorkerLost, Process
from adapters.offload.tenant_queue import TenantQueue

IDLE_SECONDS: Final = 60.0
"""The process ends after this time without a job."""
MAX_WAITING: Final = 64
"""Jobs of one tenant."""
SHORT: Final = 1.0
"""Seconds of processor time of a job in a lane of short jobs: three times the slowest body of 2 MiB."""
log = logging.getLogger(__name__)


class WorkerQueue:
    """Runs one job at a time; tenants take turns. `memory` bounds the process, in bytes.

    With `beyond` it is a lane of short jobs. One that takes longer than `SHORT` starts again in the other lane: no
    function has side effects. Until it ends there, the next ones of its tenant go there too.
    """

    def __init__(self, memory: int, beyond: WorkerQueue | None = None) -> None:
        self._memory = memory
        self._beyond = beyond
        self._waiting = TenantQueue[CodecJob]()
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._process: Process | None = None
        self._moved: set[CodecJob] = set()
        """The jobs that were too long for the lane of short jobs and have not ended."""
        self.running: CodecJob | None = None

    async def run(self, job: CodecJob) -> Any:
        """The result of a job. Raises `CapacityError` if too many of its tenant wait, and `TooLarge` for its cost."""
        self.submit(job)
        try:
            return await asyncio.wrap_future(job.future)
        except asyncio.CancelledError:
            self.abandon(job)
            raise

    def submit(self, job: CodecJob) -> None:
        """Add a job. Raises `CapacityError` if too many of its tenant wait."""
        with self._changed:
            if self._waiting.count(job.tenant) >= MAX_WAITING:
                raise _too_many(job.tenant)
            self._waiting.put(job.tenant, job)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="codec", daemon=True)
                self._thread.start()
            self._changed.notify()

    def abandon(self, job: CodecJob) -> None:
        """Cancel the job of a request that has ended. A short one that runs ends by itself."""
        job.future.cancel()
        with self._changed:
            if self._waiting.remove(job.tenant, job):
                self._moved.discard(job)
            elif self.running is job and self._process is not None and self._beyond is None:
                self._process.kill()
        if self._beyond is not None:
            self._beyond.abandon(job)  # afterwards, since a job moves only there

    # The following methods run on a thread: of this lane, or of the one of short jobs.

    def _take_over(self, job: CodecJob, *, is_long: bool) -> None:
        """Add a job from the lane of short jobs. Its tenant may have too many here."""
        with self._changed:
            if job.future.cancelled():
                return
            try:
                self.submit(job)
            except CapacityError as error:
                job.end(error=error)
            else:
                if is_long:
                    self._moved.add(job)

    def _has_long(self, tenant: str) -> bool:
        with self._changed:
            return any(job.tenant == tenant for job in self._moved)

    def _run(self) -> None:
        while (job := self._next()) is not None:
            if self._beyond is not None and job.tenant and self._beyond._has_long(job.tenant):
                self._beyond._take_over(job, is_long=False)
            else:
                self._perform(job)
            with self._changed:
                self.running = None
                self._moved.discard(job)
                if job.future.cancelled() and self._beyond is None:
                    self._end()  # `abandon` may have killed it
            del job  # the next one may arrive much later

    def _next(self) -> CodecJob | None:
        """The next job; None after `IDLE_SECONDS` without one."""
        with self._changed:
            if not self._changed.wait_for(lambda: self._waiting, IDLE_SECONDS):
                self._thread = None
                self._end()
                return None
            self.running = self._waiting.take()
            return self.running

    def _perform(self, job: CodecJob) -> None:
        try:
            outcome = self._outcome(job)
        except (CodecWorkerLost, OSError) as error:
            if not job.future.cancelled():
                log.warning("the process that decodes large bodies was lost: %s", error)
            lost = CapacityError("The process that decodes large bodies was lost. Try again.")
            job.end(error=lost.because("decoding"))
        except BaseException as error:
            job.end(error=error)
        else:
            self._settle(job, outcome)

    def _outcome(self, job: CodecJob) -> Outcome:
        with self._changed:
            if self._process is not None and not self._process.alive:
                self._end()
            if self._process is None:
                self._process = Process(self._memory)
        reusable = False
        try:
            outcome = self._process.run(job.call, self._seconds(job))
            reusable = not isinstance(outcome, TimeExceeded)
            return outcome
        finally:
            if not reusable:
                with self._changed:
                    self._end()

    def _seconds(self, job: CodecJob) -> float:
        return job.cost.limit(job.size) if self._beyond is None else SHORT

    def _settle(self, job: CodecJob, outcome: Outcome) -> None:
        if isinstance(outcome, Done):
            job.end(outcome.value)
        elif isinstance(outcome, Failed):
            job.end(error=_rebuilt(outcome))
        elif isinstance(outcome, Crashed):
            job.end(error=RuntimeError(f"a codec raised in its process:\n{outcome.text}"))
        elif isinstance(outcome, MemoryExceeded):
            job.end(error=job.cost.exceeded(f"{self._memory // 1024**2} MiB of memory"))
        elif self._beyond is not None:
            self._beyond._take_over(job, is_long=True)
        else:
            job.end(error=job.cost.exceeded(f"{self._seconds(job):.3g} s of processor time"))

    def _end(self) -> None:
        if self._process is not None:
            self._process.close()
            self._process = None


def _too_many(tenant: str) -> CapacityError:
    if not tenant:
        full = CapacityError("Too many large bodies wait to be decoded. Try again later.", retry_after=1.0)
        return full.because("decoding")
    message = f"{MAX_WAITING} large bodies of {tenant} wait to be decoded. Try again in 1 s."
    return LimitExceeded(message, limit="large_bodies", retry_after=1.0)


def _rebuilt(failed: Failed) -> InferenceError:
    error = failed.kind.__new__(failed.kind, failed.fields["message"])
    vars(error).update(failed.fields)
    return error


# Estimates the number of values in a JSON text.

MANY: Final = 10_000
"""Values that take a decoder about 5 ms if it creates an object for each."""
_PIECE: Final = 64 * 1024
_BEFORE_VALUES: Final = b",[{"


def has_many_values(body: bytes | memoryview) -> bool:
    """Whether a text may have more than `MANY` values: a comma or a bracket precedes each value but the first.

    Those within strings count too: a long text with many commas is a false positive, an image in base64 is not.
    """
    count = 0
    for at in range(0, len(body), _PIECE):
        piece = bytes(body[at : at + _PIECE])
        count += len(piece) - len(piece.translate(None, _BEFORE_VALUES))
        if count > MANY:
            return True
    return False


# Runs a codec's function in this process or in a worker process.

LARGE: Final = 64 * 1024
"""Bytes that take a codec about 5 ms if it processes each element. Larger bodies go to a worker."""
SCANNED: Final = 4 * 1024 * 1024
"""The bound for a codec that only skips values."""
_MiB: Final = 1024 * 1024
_MEDIUM: Final = 2 * _MiB
P = ParamSpec("P")
T = TypeVar("T")

_large = WorkerQueue(2048 * _MiB)
_medium = WorkerQueue(512 * _MiB, beyond=_large)
"""A separate lane for usual bodies, so that they do not wait behind huge ones."""

TENANT: Final = ContextVar("tenant", default="")
"""The tenant whose request this task serves. The tenants' jobs take turns; "" is the server itself.

Whoever establishes a tenant sets it: the record of a request, a batch, a binding of a bus. Tasks inherit it.
"""


async def run(size: int, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Call the function. `size` is the number of bytes that it reads or writes element by element.

    The function belongs to a module, works on plain data, has no side effects and raises `InferenceError` only.
    Raises `CapacityError` if too many large bodies of the tenant wait, and `TooLarge` if one takes too much memory or
    processor time.
    """
    if size < LARGE:
        return function(*args, **kwargs)
    return await decode_file(BODY, size, function, *args, **kwargs)


async def decode_file(cost: Cost, size: int, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Like `run`, for a file that a native library decodes: never in this process."""
    job = CodecJob(CodecCall(function, args, dict(kwargs)), TENANT.get(), cost, size)
    value: T = await (_medium if size < _MEDIUM else _large).run(job)
    return value


async def scan(size: int, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Like `run`, for a function that only skips values, which is fast up to a larger size."""
    return await run(size if size >= SCANNED else 0, function, *args, **kwargs)


async def parse(body: bytes | memoryview, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Like `run`, for a function that decodes `body`, a JSON text. The number of its values also decides."""
    size = len(body)
    leaves = size >= SCANNED or (size >= LARGE and has_many_values(body))
    return await run(size if leaves else 0, function, *args, **kwargs)
