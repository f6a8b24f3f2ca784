"""One worker process, its queue of calls, and the thread that passes them on."""

from __future__ import annotations

import logging
import queue
import threading
from concurrent.futures import Future
from typing import Any, Final

from adapters.errors import CapacityError, InferenceError, TooLarge
from adapters.offload.jobs import CodecCall, Crashed, Done, Failed, Outcome
from adapters.offload.process import CodecWorkerLost, Process

IDLE_SECONDS: Final = 60.0
"""The process ends after this time without a job."""
MAX_WAITING: Final = 64
log = logging.getLogger(__name__)


class WorkerQueue:
    """Runs one call at a time, in order of arrival. `memory` bounds the process, in bytes."""

    def __init__(self, memory: int) -> None:
        self._memory = memory
        self._jobs: queue.SimpleQueue[tuple[Future[Any], CodecCall]] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._process: Process | None = None
        self._waiting: set[Future[Any]] = set()
        self._running: Future[Any] | None = None

    def submit(self, job: CodecCall) -> Future[Any]:
        """Add a call. Raises `CapacityError` if the queue is full."""
        future: Future[Any] = Future()
        with self._lock:
            if len(self._waiting) >= MAX_WAITING:
                raise CapacityError("Too many large bodies wait to be decoded. Try again later.", retry_after=1.0)
            self._waiting.add(future)
            self._jobs.put((future, job))
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="codec", daemon=True)
                self._thread.start()
        return future

    def abandon(self, future: Future[Any]) -> None:
        """Cancel the call of a request that has ended."""
        cancelled = future.cancel()
        with self._lock:
            if cancelled:
                self._waiting.discard(future)
            elif self._running is future and self._process is not None:
                self._process.kill()

    # The following methods run on the thread.

    def _run(self) -> None:
        while (entry := self._next()) is not None:
            future, job = entry
            with self._lock:
                self._waiting.discard(future)
            if future.set_running_or_notify_cancel():
                self._perform(future, job)
            del entry, future, job  # the next one may arrive much later

    def _next(self) -> tuple[Future[Any], CodecCall] | None:
        """The next call; None after `IDLE_SECONDS` without one."""
        while True:
            try:
                return self._jobs.get(timeout=IDLE_SECONDS)
            except queue.Empty:
                with self._lock:
                    if self._jobs.empty():
                        self._thread = None
                        self._end()
                        return None

    def _perform(self, future: Future[Any], job: CodecCall) -> None:
        try:
            outcome = self._outcome(future, job)
        except (CodecWorkerLost, OSError) as error:
            log.warning("the process that decodes large bodies was lost: %s", error)
            future.set_exception(CapacityError("The process that decodes large bodies was lost. Try again."))
        except BaseException as error:
            future.set_exception(error)
        else:
            self._settle(future, outcome)

    def _outcome(self, future: Future[Any], job: CodecCall) -> Outcome:
        with self._lock:
            if self._process is not None and not self._process.alive:
                self._end()
            if self._process is None:
                self._process = Process(self._memory)
            self._running = future
        reusable = False
        try:
            outcome = self._process.run(job)
            reusable = True
            return outcome
        finally:
            with self._lock:
                self._running = None
                if not reusable:
                    self._end()

    def _settle(self, future: Future[Any], outcome: Outcome) -> None:
        if isinstance(outcome, Done):
            future.set_result(outcome.value)
        elif isinstance(outcome, Failed):
            future.set_exception(_rebuilt(outcome))
        elif isinstance(outcome, Crashed):
            future.set_exception(RuntimeError(f"a codec raised in its process:\n{outcome.text}"))
        else:
            limit = self._memory // 1024**2
            message = f"The body takes more than {limit} MiB of memory to decode."
            future.set_exception(TooLarge(f"{message} Send fewer values, or tensors in binary form."))

    def _end(self) -> None:
        if self._process is not None:
            self._process.close()
            self._process = None


def _rebuilt(failed: Failed) -> InferenceError:
    error = failed.kind.__new__(failed.kind, failed.fields["message"])
    vars(error).update(failed.fields)
    return error
