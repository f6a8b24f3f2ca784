"""Moves pending requests to idle copies of a model, and ends overdue ones."""

from __future__ import annotations

import asyncio
import functools
import logging
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from math import inf

from adapters.errors import CallerError, CapacityError, DeadlineError, Unavailable
from adapters.tensors import Inference, Tensor
from adapters.wire.decoding import whole_number
from runtimes.tensor.configuration.model_config import ModelConfig
from runtimes.tensor.interfaces import Instance, StreamControl, Tensors
from runtimes.tensor.scheduling.clock import Deadlines, Quiet, clock
from runtimes.tensor.scheduling.intake import Intake
from runtimes.tensor.scheduling.latency import LatencyCurve
from runtimes.tensor.scheduling.outlet import ResponseOutlet
from runtimes.tensor.scheduling.pending import (
    Execution,
    NoRecorder,
    Pending,
    PreparedRequest,
    Recorder,
    for_caller,
    unreadable,
)
from runtimes.tensor.scheduling.queue import BatchQueue
from runtimes.tensor.scheduling.responses import Responses

_MICROSECOND = 1e-6


class Dispatcher(ABC):
    """Dispatches the requests of one version. It belongs to the loop that created it, and does not own its
    instances."""

    def __init__(
        self,
        config: ModelConfig,
        instances: Sequence[Instance],
        recorder: Recorder | None = None,
        *,
        whole_requests: bool = False,
    ) -> None:
        """`whole_requests`: a batch is a list of requests without joined tensors."""
        self._loop = asyncio.get_running_loop()
        self._clock = clock(self._loop)
        self._recorder = recorder or NoRecorder()
        self._intake = Intake(config, whole_requests=whole_requests)
        self._curve = LatencyCurve()
        self._queue: BatchQueue[Pending] = BatchQueue(config, self._curve, joins=whole_requests or not config.decoupled)
        self._running: dict[Instance, tuple[Execution, list[Pending]]] = {}
        self._again: deque[list[Pending]] = deque()  # parts of batches that failed
        self._idle: list[Instance] = []
        self._instances = 0
        self._stuck: dict[Instance, float] = {}
        """Copies that cannot be replaced, and the loop time of the next try."""
        # Not at once: requests of this turn of the loop and the next can join. Clients
        # that were answered together send again together, and a batch costs little more than a row.
        self._gather = self._dispatch_a_turn_later if self._queue.joins else self._dispatch_soon
        self._dispatching = False
        self._soon = False
        self._wake: asyncio.TimerHandle | None = None
        self._deadlines = Deadlines(self._loop, self._clock, self._end_overdue)
        self._quiet = Quiet(lambda: self.is_idle)
        self.closed = False
        for instance in instances:
            self.add_instance(instance)

    def add_instance(self, instance: Instance) -> None:
        instance.on_ready = functools.partial(self._back, instance)
        instance.on_stuck = functools.partial(self._lost, instance)
        self._instances += 1
        if instance.ready:
            self._free(instance)

    @property
    def waiting(self) -> int:
        """Requests that no copy computes yet."""
        return self._queue.size

    @property
    def computing(self) -> int:
        """Requests that are being computed."""
        return sum(len(members) for _, members in self._running.values())

    def holds(self, sequence: int | str) -> bool:
        """False: no state is stored between requests."""
        return False

    # ── coming and leaving ────────────────────────────────────────────────────────────────────────────

    def _pending(self, inference: Inference, prepared: PreparedRequest, now: float, due: float) -> Pending:
        pending = Pending(self._loop, self, prepared, now, due)
        self._prioritize(pending, inference)
        return pending

    def _prioritize(self, pending: Pending, inference: Inference) -> None:
        """Set its priority, and the end of its time in the queue."""
        timeout = 0.0
        if inference.parameters:
            pending.level = number_of(inference, "priority")
            timeout = number_of(inference, "timeout") * _MICROSECOND
        pending.level = self._queue.rules.level(pending.level)
        pending.expires = self._queue.rules.expiry(pending.level, pending.arrived, pending.due, timeout)

    def _submit(self, pending: Pending) -> None:
        """Queue a request. Raises `CapacityError` if the queue is full or the deadline cannot be met."""
        now = pending.arrived
        if self._stuck and len(self._stuck) == self._instances:
            raise self._no_copy()
        if pending.expires < inf:
            if pending.expires <= now:
                raise DeadlineError("The request arrived after its deadline.")
            if self._queue.size or not self._idle:
                self._queue.admit(pending, now, self._free_in(now), len(self._running) + len(self._idle))
        if self._soon and self._queue.is_full(pending.level):
            self._dispatch()  # a copy is idle: no request is refused for others that wait for a larger batch
        self._queue.add(pending, now, self.computing if self._queue.patient else 0)
        self._deadlines.by(pending.expires)
        if self._idle and not self._soon:
            self._soon = True
            self._loop.call_soon(self._gather)

    def _open(self) -> None:
        if self.closed:
            raise CapacityError("The model is being unloaded.", code="model_unloading")

    def withdraw(self, pending: Pending) -> None:
        if pending.waiting:
            self._queue.remove(pending)
        self._settle()

    def _free_in(self, now: float) -> float:
        """Seconds until a copy is likely to be idle."""
        if self._idle or not self._running:
            return 0.0
        return max(0.0, min(e.started + self._curve.predict(e.rows) for e, _ in self._running.values()) - now)

    # ── running ───────────────────────────────────────────────────────────────────────────────────────

    def _dispatch_a_turn_later(self) -> None:
        self._loop.call_soon(self._dispatch_soon)

    def _dispatch_soon(self) -> None:
        self._soon = False
        self._dispatch()

    def _dispatch(self) -> None:
        if self._dispatching:  # a copy answered before `start` returned; the caller of `start` continues
            return
        self._dispatching = True
        try:
            while self._idle and (self._queue.size or self._again):
                if not self._idle[-1].ready:  # it died idle, and reports its return
                    self._idle.pop()
                elif members := self._next():
                    self._run(self._idle.pop(), members)
                else:
                    break
        finally:
            self._dispatching = False

    def _next(self) -> list[Pending]:
        while self._again:
            again = [member for member in self._again.popleft() if not member.done()]
            if again:
                return again
        members = self._queue.next(self._clock(), self.computing if self._queue.patient else 0)
        if not members and self._queue.wake_at < inf:
            if self._wake is not None:
                self._wake.cancel()
            self._wake = self._loop.call_at(self._queue.wake_at, self._dispatch)
        return members

    def _run(self, instance: Instance, members: list[Pending]) -> None:
        execution = Execution(self._clock(), sum([member.rows for member in members]))
        for member in members:
            member.execution = execution
        self._running[instance] = (execution, members)
        self._start(instance, execution, members)

    @abstractmethod
    def _start(self, instance: Instance, execution: Execution, members: list[Pending]) -> None:
        """Start an execution; `_ended` must be called at its end."""

    def _ended(self, instance: Instance) -> None:
        """Handle the end of an execution, or the loss of its copy."""
        del self._running[instance]
        if instance.ready:
            self._free(instance)

    def _free(self, instance: Instance) -> None:
        if instance not in self._running and instance not in self._idle:
            self._idle.append(instance)
            self._dispatch()

    # ── copies that are lost ──────────────────────────────────────────────────────────────────────────

    def _lost(self, instance: Instance, seconds: float) -> None:
        """Record that an instance is lost for at least this time. If all are lost, pending requests fail."""
        self._stuck[instance] = self._clock() + seconds
        if len(self._stuck) == self._instances:
            self._end_waiting(self._no_copy)

    def _no_copy(self) -> Unavailable:
        wait = max(0.0, min(self._stuck.values()) - self._clock())
        return Unavailable(
            "The model's copies are lost and cannot be replaced now; the server's log has the reason.",
            code="model_not_ready",
            retry_after=wait,
        )

    def _back(self, instance: Instance) -> None:
        self._stuck.pop(instance, None)
        self._free(instance)

    # ── ending ────────────────────────────────────────────────────────────────────────────────────────

    def _end_overdue(self, now: float) -> float:
        """The time of the next deadline."""
        for pending in self._queue.expire(now):
            pending.fail(overdue(pending, now))
        when = min((pending.expires for pending in self._queue), default=inf)
        for member in self._begun():
            if member.due <= now:
                member.fail(DeadlineError("The request's deadline passed before its answer was ready."))
            elif not member.done():
                when = min(when, member.due)
        self._settle()
        return when

    def _begun(self) -> Iterator[Pending]:
        """The requests that have left the queue and may not be answered yet."""
        yield from (member for _, members in self._running.values() for member in members)
        yield from (member for members in self._again for member in members)

    @property
    def is_idle(self) -> bool:
        """Whether no request waits and none is computed."""
        return not (self._queue.size or self._running or self._again)

    def _settle(self) -> None:
        """After the end of a request or an execution, wake the waiters for idleness."""
        self._quiet.settle()

    async def drain(self) -> None:
        """Return when the dispatcher is idle. New requests are not refused."""
        await self._quiet.wait()

    async def aclose(self) -> None:
        """Refuse new requests, and end waiting ones. Requests in execution end with their instance. Idempotent."""
        self.closed = True
        self._deadlines.stop()
        if self._wake is not None:
            self._wake.cancel()
        self._end_waiting(_unloaded)

    def _end_waiting(self, why: Callable[[], CapacityError]) -> None:
        for pending in [*self._queue, *(member for members in self._again for member in members)]:
            if pending.waiting:
                self._queue.remove(pending)
            pending.fail(why())
        self._again.clear()
        self._settle()


def _unloaded() -> CapacityError:
    return CapacityError("The model was unloaded before the request's turn came.", code="model_unloading")


def number_of(inference: Inference, name: str) -> int:
    """The number in a parameter; 0 if it is absent or not a number."""
    value = inference.parameters.get(name, 0)
    if isinstance(value, str):
        return whole_number(value) or 0
    return int(value) if isinstance(value, int) and not isinstance(value, bool) else 0


def overdue(pending: Pending, now: float) -> CapacityError | DeadlineError:
    if pending.due <= now:
        return DeadlineError("The request's deadline passed before its turn.")
    return CapacityError(
        f"The request waited for {now - pending.arrived:.3g} s, the longest wait that the model permits.",
        code="queue_timeout",
    )


_LOG = logging.getLogger(__name__)


class Streamer(Dispatcher):
    """The scheduler of decoupled models. Requests wait in the queue as usual, and are never joined."""

    def __init__(self, config: ModelConfig, instances: Sequence[Instance], recorder: Recorder | None = None) -> None:
        self._outlet = ResponseOutlet(config)
        self._responses: dict[Pending, Responses] = {}
        self._streams: dict[Pending, StreamControl] = {}
        super().__init__(config, instances, recorder)

    def infer(self, inference: Inference, deadline: float = inf) -> asyncio.Future[list[Tensor]]:
        raise CallerError(
            f"Model `{inference.model_name}` sends any number of responses: use a stream.",
            code="model_decoupled",
        )

    def stream(self, inference: Inference, deadline: float = inf) -> Responses:
        """Begin a request. Raises the errors of `Batcher.infer`; the iterator may raise the errors of its future."""
        self._open()
        prepared = self._intake.read(inference)
        if prepared.rows > self._queue.max_rows:
            raise CallerError(f"The request has {prepared.rows} rows; send at most {self._queue.max_rows} at a time.")
        pending = self._pending(inference, prepared, self._clock(), deadline)
        self._submit(pending)
        responses = self._responses[pending] = Responses(pending)
        pending.add_done_callback(self._over)
        return responses

    def _over(self, pending: object) -> None:
        """Handle the end of a request. If it failed or was cancelled, the model's stream is cancelled."""
        assert isinstance(pending, Pending)
        self._responses.pop(pending, None)
        stream = self._streams.pop(pending, None)
        if stream is not None:
            stream.stop()

    def _start(self, instance: Instance, execution: Execution, members: list[Pending]) -> None:
        (member,) = members
        done = functools.partial(self._done, instance, execution, member)
        try:
            stream = instance.stream(member.prepared.inputs, functools.partial(self._respond, member), done)
        except Exception as error:
            _LOG.exception("instance %s could not take a request", instance.name)
            done(error)
            return
        if instance not in self._running:
            return
        if member.done():
            stream.stop()
        else:
            self._streams[member] = stream
            self._responses[member].begun(stream)

    def _respond(self, member: Pending, outputs: Tensors) -> None:
        if member.done():
            return
        try:
            response = self._outlet.whole(outputs, member.prepared)
        except Exception:
            _LOG.exception("a response could not be read")
            member.fail(unreadable())
            return
        self._responses[member].push(response)

    def _done(self, instance: Instance, execution: Execution, member: Pending, error: BaseException | None) -> None:
        execution.seconds = self._clock() - execution.started
        self._streams.pop(member, None)
        self._ended(instance)
        if error is None:
            self._curve.observe(member.rows, execution.seconds)
            self._recorder.executed(1, member.rows, execution.started - member.arrived, execution.seconds)
            member.answer([])
        else:
            member.fail(for_caller(error))
        self._settle()
