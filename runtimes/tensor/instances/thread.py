"""A copy of a model on its own thread: for frameworks that compute outside of Python's lock.

A thread cannot be killed. A thread that hangs is abandoned, and releases its resources if it ends later.
"""

from __future__ import annotations

import asyncio
import logging
import os
import queue
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from runtimes.tensor import texts
from runtimes.tensor.instances.quantization import loaded
from runtimes.tensor.instances.runner import Runner, joined
from runtimes.tensor.instances.worker import Job, Listener, ModelLog, resident_bytes
from runtimes.tensor.interfaces import Array, Batch, LoadReport, ModelFailed, ModelLoadError, Tensors

MAX_LEFT_ALONE: Final = 4
"""The number of hanging threads of one model at which no further thread is replaced."""
CLOSE_SECONDS = 5.0
MANY_TEXTS: Final = 4096
LARGE_TEXTS: Final = 1 << 20
"""Bytes of all texts of an output."""
log = logging.getLogger(__name__)

_left_alone: dict[str, int] = {}
_lock = threading.Lock()


def left_alone() -> Mapping[str, int]:
    """Threads that hang and were replaced, by model."""
    return _left_alone


def _count(model: str, change: int) -> None:
    _left_alone[model] = _left_alone.get(model, 0) + change


class ThreadWorker:
    """The loop's side, and the functions that run on the thread (`_run` and all below it)."""

    def __init__(self, job: Job, listener: Listener) -> None:
        self._job = job
        self._listener = listener
        self._loop = asyncio.get_running_loop()
        self._queue: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._loaded: asyncio.Future[LoadReport] = self._loop.create_future()
        self._ended: asyncio.Future[None] = self._loop.create_future()
        self._thread = threading.Thread(target=self._run, name=job.name, daemon=True)
        self._gone = False
        """Whether the worker was cancelled, and its result is discarded."""
        self._left = False
        """Whether the thread is counted as hanging."""
        self._over = False

    async def load(self) -> LoadReport:
        model = self._job.config.name
        if _left_alone.get(model, 0) >= MAX_LEFT_ALONE:
            raise ModelLoadError(f"{_left_alone[model]} threads of model `{model}` hang, and no more are started")
        self._thread.start()
        try:
            return await self._loaded
        except asyncio.CancelledError:
            self.abandon()
            raise

    def submit(self, batch: Batch) -> None:
        self._queue.put(batch)

    def submit_stream(self, inputs: Tensors) -> None:
        self._queue.put(inputs)

    def go_on(self) -> None:
        self._queue.put(True)

    def stop(self) -> None:
        self._queue.put(False)

    def abandon(self) -> None:
        self._gone = True
        self._queue.put(None)
        with _lock:
            if self._left or self._over or self._thread.ident is None:
                return
            self._left = True
            _count(self._job.config.name, 1)
        log.error("thread %s hangs: it is abandoned, with the memory that it holds", self._job.name)

    async def aclose(self) -> None:
        self._gone = True
        if self._thread.ident is None or self._left:
            return
        self._queue.put(None)
        done, _ = await asyncio.wait([self._ended], timeout=CLOSE_SECONDS)
        if not done:
            self.abandon()

    def _post(self, callback: Callable[..., None], *args: object) -> None:
        """Call a function on the loop, unless the loop is closed."""
        try:
            self._loop.call_soon_threadsafe(callback, *args)
        except RuntimeError:
            self._queue.put(None)

    def _end(self) -> None:
        if not self._ended.done():
            self._ended.set_result(None)

    def _answer(self, result: Tensors | BaseException) -> None:
        if not self._gone:
            self._listener.answered(result)

    def _respond(self, outputs: Tensors) -> None:
        if not self._gone:
            self._listener.responded(outputs)

    def _streamed(self) -> None:
        if not self._gone:
            self._listener.streamed()

    def _report(self, report: LoadReport | ModelLoadError) -> None:
        if self._loaded.done():
            return
        if isinstance(report, LoadReport):
            self._loaded.set_result(report)
        else:
            self._loaded.set_exception(report)

    # From here on, the thread.

    def _run(self) -> None:
        runner = None
        try:
            if (runner := self._load()) is not None:
                self._serve(runner)
        finally:
            if runner is not None:
                runner.close()
            with _lock:
                self._over = True
                if self._left:
                    _count(self._job.config.name, -1)
                    log.info("thread %s, which hung, has ended", self._job.name)
            self._post(self._end)

    def _load(self) -> Runner | None:
        job = self._job
        started = time.monotonic()
        before = resident_bytes()
        try:
            if job.cpus:
                os.sched_setaffinity(0, job.cpus)  # of this thread, and of those that the framework starts from it
            result = loaded(job)
            runner = Runner(job.config, result.model, ModelLog(job.name).text)
        except ModelLoadError as error:
            self._post(self._report, error)
            return None
        except OSError as error:
            self._post(self._report, ModelLoadError(f"cores {list(job.cpus)}: {error.strerror}"))
            return None
        except Exception as error:  # a defect of ours; the load must fail and not hang
            log.exception("loading %s failed", job.name)
            self._post(self._report, ModelLoadError(f"{type(error).__name__}: {error}"))
            return None
        grown = max(0, resident_bytes() - before)
        self._post(self._report, LoadReport(time.monotonic() - started, grown, 0, result.quantization))
        return runner

    def _serve(self, runner: Runner) -> None:
        while (job := self._queue.get()) is not None:
            if type(job) is Batch:
                self._post(self._answer, _outcome(runner, job))
            elif not isinstance(job, bool):  # a word for a stream that has ended meanwhile
                self._serve_stream(runner, job)

    def _serve_stream(self, runner: Runner, inputs: Tensors) -> None:
        """Send responses, each after its permission. The first response needs none."""
        allowed: list[bool] = [True]

        def send(outputs: Tensors) -> bool:
            word = allowed.pop() if allowed else self._queue.get()
            if word is None:
                self._queue.put(None)  # for `_serve`, to end
            if word is not True:
                return False
            self._post(self._respond, _compact(outputs))
            return True

        try:
            runner.stream({name: texts.expanded(array) for name, array in inputs.items()}, send)
        except ModelFailed as error:
            self._post(self._answer, error)
        else:
            self._post(self._streamed)


def _compact(outputs: Tensors) -> Tensors:
    """Many or large texts in binary form, so that the loop does not encode them."""
    if not any(array.dtype.hasobject and _is_large(array) for array in outputs.values()):
        return outputs
    return {
        name: texts.as_array(texts.packed(array)) if array.dtype.hasobject else array for name, array in outputs.items()
    }


def _is_large(array: Array) -> bool:
    return array.size > MANY_TEXTS or sum(map(len, array.reshape(-1).tolist())) >= LARGE_TEXTS


def _outcome(runner: Runner, batch: Batch) -> Tensors | BaseException:
    try:
        return _compact(runner.infer(joined(batch), sum(batch.rows), batch.outputs))
    except ModelFailed as error:
        return error
    except Exception as error:  # the batch could not be joined, or there is no memory for it
        return ModelFailed(f"{type(error).__name__}: {error}")
