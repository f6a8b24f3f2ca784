"""One copy of a model: watched, and replaced when it dies or hangs."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable

from runtimes.tensor.instances.worker import Job, MakeWorker, ModelThread
from runtimes.tensor.interfaces import Batch, Done, InstanceEnded, InstanceLost, LoadReport, ModelLoadError, Tensors

FIRST_BACKOFF = 0.1
LONGEST_BACKOFF = 30.0
PATIENCE = 1.0
"""Seconds that requests wait at most for the next try of a replacement."""
STABLE_SECONDS = 60.0
log = logging.getLogger(__name__)


class Copy:
    """An `Instance`. A worker that takes longer than `execution_timeout` seconds for one batch counts as hung."""

    def __init__(self, job: Job, make: MakeWorker, execution_timeout: float) -> None:
        self.name = job.name
        self.ready = False
        self.is_loading = False
        """Whether the model is loaded for the first time, and not again after a loss."""
        self.on_ready: Callable[[], None] = _ignored
        self.on_stuck: Callable[[float], None] = _ignored
        self.report = LoadReport()
        self.restarts = 0
        self._job = job
        self._make = make
        self._timeout = execution_timeout
        self._loop = asyncio.get_running_loop()
        self._worker: ModelThread = make(job, self)
        self._done: Done | None = None
        self._stream: _Stream | None = None
        self._since = 0.0
        self._watch: asyncio.TimerHandle | None = None
        self._backoff = FIRST_BACKOFF
        self._loaded_at = 0.0
        self._worked = False
        self._replacing: asyncio.Task[None] | None = None
        self._closed = False

    async def load(self) -> None:
        """Load the model. Called once, before any other method. Raises `ModelLoadError`."""
        self.is_loading = True
        try:
            self.report = await self._worker.load()
        finally:
            self.is_loading = False
        self._loaded_at = self._loop.time()
        self.ready = True

    def start(self, batch: Batch, done: Done) -> None:
        if not self.ready:
            return done(InstanceEnded(f"{self.name} is being replaced"))
        self._begin(done)
        return self._worker.submit(batch)

    def _begin(self, done: Done) -> None:
        assert not self._busy, "one batch at a time"
        self._done = done
        self._since = self._loop.time()
        if self._watch is None:
            self._watch = self._loop.call_later(self._timeout, self._look)

    def stream(
        self, inputs: Tensors, response: Callable[[Tensors], None], done: Callable[[BaseException | None], None]
    ) -> _Stream:
        stream = _Stream(self, response, done)
        if not self.ready:
            self._loop.call_soon(done, InstanceEnded(f"{self.name} is being replaced"))
            stream.ended = True
            return stream
        assert not self._busy, "one batch at a time"
        self._stream = stream
        self._since = self._loop.time()
        if self._watch is None:
            self._watch = self._loop.call_later(self._timeout, self._look)
        self._worker.submit_stream(inputs)
        return stream

    @property
    def _busy(self) -> bool:
        return self._done is not None or self._stream is not None

    def go_on(self) -> None:
        self._since = self._loop.time()
        self._worker.go_on()

    def stop(self) -> None:
        self._since = self._loop.time()
        self._worker.stop()

    # Events of the worker.

    def answered(self, result: Tensors | BaseException) -> None:
        done, self._done = self._done, None
        if done is not None:
            self._worked |= type(result) is dict
            done(result)
        elif self._stream is not None and isinstance(result, BaseException):
            self._end_stream(result)

    def responded(self, outputs: Tensors) -> None:
        if (stream := self._stream) is not None:
            self._since = self._loop.time()
            stream.responded(outputs)

    def streamed(self) -> None:
        self._end_stream(None)

    def lost(self, reason: str) -> None:
        if self._closed:
            return
        self.ready = False
        log.warning("instance %s %s; a replacement starts", self.name, reason)
        self._replacing = self._loop.create_task(self._replace(), name=f"replace {self.name}")
        self._fail(InstanceLost(f"the copy of the model that computed this {reason}"))

    def _fail(self, error: InstanceLost) -> None:
        if self._done is not None:
            self.answered(error)
        if self._stream is not None:
            self._end_stream(error)

    def _end_stream(self, error: BaseException | None) -> None:
        stream, self._stream = self._stream, None
        if stream is not None:
            stream.ended = True
            stream.done(error)

    def _look(self) -> None:
        """Replace the worker if its batch has taken too long. The timer runs only while there is work."""
        self._watch = None
        waits = self._stream is not None and self._stream.owed
        if not self._busy:
            return
        left = self._timeout if waits else self._since + self._timeout - self._loop.time()
        if left > 0:
            self._watch = self._loop.call_later(left, self._look)
            return
        self._worker.abandon()
        self.lost(f"took longer than {self._timeout:g} s")

    async def _replace(self) -> None:
        """Start another worker, and try again until one is ready; at once if the last worker had responded."""
        if self._worked or self._loop.time() - self._loaded_at > STABLE_SECONDS:
            self._backoff = FIRST_BACKOFF
        self._worked = False
        while True:
            await asyncio.sleep(self._backoff)
            self._backoff = min(2 * self._backoff, LONGEST_BACKOFF)
            self.restarts += 1
            self._worker = self._make(self._job, self)
            try:
                self.report = await self._worker.load()
                break
            except (ModelLoadError, OSError) as error:
                log.warning("instance %s cannot be replaced, next try in %.1f s: %s", self.name, self._backoff, error)
                if self._backoff > PATIENCE:
                    self.on_stuck(self._backoff)
        self._loaded_at = self._loop.time()
        self._replacing = None
        self.ready = True
        log.info("instance %s is ready again", self.name)
        self.on_ready()

    async def aclose(self) -> None:
        if self._closed:
            return
        self._closed = True
        self.ready = False
        if self._watch is not None:
            self._watch.cancel()
        if (replacing := self._replacing) is not None:
            replacing.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await replacing
        self._fail(InstanceEnded(f"{self.name} was ended"))
        await self._worker.aclose()


class _Stream:
    """The scheduler's hold on one request of a decoupled model."""

    def __init__(
        self, copy: Copy, response: Callable[[Tensors], None], done: Callable[[BaseException | None], None]
    ) -> None:
        self.done = done
        self.ended = False
        self.owed = False
        """Whether the worker waits for permission to continue."""
        self._copy = copy
        self._response = response
        self._paused = False
        self._stopped = False

    def responded(self, outputs: Tensors) -> None:
        if self._stopped:
            return
        self.owed = True
        self._response(outputs)
        self._go_on()

    def pause(self) -> None:
        self._paused = True

    def resume(self) -> None:
        self._paused = False
        self._go_on()

    def stop(self) -> None:
        if not self._stopped and not self.ended:
            self._stopped = True
            self.owed = False
            self._copy.stop()

    def _go_on(self) -> None:
        if self.owed and not self._paused and not self._stopped and not self.ended:
            self.owed = False
            self._copy.go_on()


def _ignored(*_: float) -> None:
    """The default of callbacks: nothing."""
