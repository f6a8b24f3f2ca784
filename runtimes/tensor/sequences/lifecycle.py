"""Open sequences of a model: turns enter, compute in order, and leave; a sequence ends."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Sequence
from math import inf

from adapters.errors import BackendError, CallerError, CapacityError, InferenceError
from adapters.tensors import Tensor
from runtimes.tensor.configuration.model_config import ModelConfig
from runtimes.tensor.interfaces import Instance, InstanceLost, RequestInstance, RowsFailed, Tensors
from runtimes.tensor.requests.outcomes import ModelOutputs
from runtimes.tensor.scheduling.clock import Deadlines, Quiet, clock
from runtimes.tensor.scheduling.latency import LatencyCurve
from runtimes.tensor.scheduling.outlet import ResponseOutlet
from runtimes.tensor.scheduling.pending import Execution, NoRecorder, Pending, Recorder, for_caller, for_row, unreadable
from runtimes.tensor.scheduling.responses import Delivery, OrderedDelivery
from runtimes.tensor.sequences.inputs import SequenceInputs
from runtimes.tensor.sequences.lane import Lane, RequestLane
from runtimes.tensor.sequences.sequence import Chooser, OpenSequences, RequestSequence, SequencePlace, Turn


class SequenceLifecycle:
    """All sequences of one model. It belongs to the loop that created it."""

    def __init__(self, config: ModelConfig, instances: Sequence[Instance], recorder: Recorder | None = None) -> None:
        rules = config.sequence_batching
        assert rules is not None
        self._loop = asyncio.get_running_loop()
        self.now = clock(self._loop)
        self._recorder = recorder or NoRecorder()
        self._outlet = ResponseOutlet(config)
        self._inputs = SequenceInputs(config)
        self._curve = LatencyCurve()
        self._delivery = OrderedDelivery() if rules.preserve_ordering else Delivery()
        chooser = Chooser(config, self._curve, self._inputs.key)
        self._lanes = [self._lane(config, instance, chooser) for instance in instances]
        self._sequences = OpenSequences(config.name, self._lanes, rules.max_sequence_idle or 1.0)
        self._idle = Deadlines(self._loop, self.now, self._end_idle, max(self._sequences.max_idle / 20, 0.005))
        self._wakes: dict[Lane, asyncio.TimerHandle] = {}
        self._count = 0
        self._soon = False
        self._quiet = Quiet(lambda: not self._sequences)
        self._closed = False
        for lane in self._lanes:
            lane.instance.on_ready = functools.partial(self._replaced, lane)

    def _lane(self, config: ModelConfig, instance: Instance, chooser: Chooser) -> Lane:
        if isinstance(instance, RequestInstance):
            return RequestLane(config, instance, chooser, self._inputs, self)
        return Lane(instance, chooser, self._inputs, self)

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        return self._loop

    # ── sequences ─────────────────────────────────────────────────────────────────────────────────────

    def _append(self, turn: Turn) -> None:
        self._count += 1
        turn.order = self._count
        turn.waiting = True
        turn.sequence.turns.append(turn)
        turn.sequence.ending = turn.sequence.ending or turn.end
        self._go_on_soon()

    def withdraw(self, pending: Pending) -> None:
        """Withdraw a request that its caller has cancelled, or whose deadline has passed."""
        if isinstance(pending, Turn) and pending.request is not None:
            pending.request.leave()
        if pending.waiting:
            assert isinstance(pending, Turn)
            sequence = pending.sequence
            pending.waiting = False
            if pending.start and (sequence.running or sequence.started or sequence.turns[0] is not pending):
                self._cancel_restart(sequence, pending)
                return
            sequence.turns.remove(pending)
            if pending.start:
                self._close(sequence, f"Sequence {sequence.id!r} was cancelled before it began.", "sequence_not_open")
            else:
                self._quit_if_last(sequence)
        self._settle()

    def _cancel_restart(self, sequence: RequestSequence, restart: Turn) -> None:
        """Withdraw a start in an open sequence: requests after it fail, and requests before it are computed."""
        while (turn := sequence.turns.pop()) is not restart:
            turn.waiting = False
            turn.fail(CallerError(f"The start of sequence {sequence.id!r} was cancelled.", code="sequence_not_open"))
        sequence.ending = True
        self._quit_if_last(sequence)
        self._settle()

    def _quit_if_last(self, sequence: RequestSequence) -> None:
        """End a sequence without further requests. A model with an `end` control gets a row first."""
        if sequence.turns or sequence.running or sequence.closed:
            return
        sequence.quiet_since = self.now()
        self._idle.by(sequence.quiet_since + self._sequences.max_idle)
        if sequence.ending:
            self._quit(sequence)

    def _quit(self, sequence: RequestSequence) -> None:
        if sequence.nothing is None or not sequence.started:
            self._close(sequence)
            return
        place = SequencePlace(sequence.id, start=False, end=True)
        turn = Turn(self._loop, self, sequence.nothing, self.now(), inf, sequence, place)
        turn.valid = False
        turn.add_done_callback(_ignore)
        self._delivery.enter(turn)
        self._append(turn)

    def _close(self, sequence: RequestSequence, why: str = "", code: str = "sequence_not_open") -> None:
        """Close a sequence. Requests that wait in it after a failure fail."""
        if sequence.closed:
            return
        self._sequences.close(sequence)
        turns = list(sequence.turns)
        sequence.turns.clear()
        for turn in turns:
            turn.waiting = False
            turn.fail(CapacityError(why, code=code) if code != "sequence_not_open" else CallerError(why, code=code))
        if not self._closed:
            self._go_on_soon()
        self._settle()

    def _settle(self) -> None:
        self._delivery.release()
        self._quiet.settle()

    def _end_idle(self, now: float) -> float:
        over, next_ = self._sequences.idle(now)
        for sequence in over:
            sequence.ending = True
            self._quit(sequence)
        return next_

    # ── computing ─────────────────────────────────────────────────────────────────────────────────────

    def _go_on_soon(self) -> None:
        # Not at once: requests of this turn of the loop can join.
        if not self._soon:
            self._soon = True
            self._loop.call_soon(self._go_on)

    def _go_on(self) -> None:
        self._soon = False
        if not self._closed:
            self._sequences.place()
            for lane in self._lanes:
                lane.go_on()

    def wake(self, lane: Lane, when: float) -> None:
        if lane in self._wakes:
            self._wakes[lane].cancel()
        self._wakes[lane] = self._loop.call_at(when, self._go_on)

    def computed(self, execution: Execution, turns: list[Turn], result: Tensors | RowsFailed, rows: list[int]) -> None:
        outputs, errors = (result.outputs, result.errors) if isinstance(result, RowsFailed) else (result, {})
        self._curve.observe(execution.rows, execution.seconds)
        valid = [turn for turn in turns if turn.valid]
        if valid:
            queued = sum([execution.started - turn.arrived for turn in valid])
            self._recorder.executed(len(valid), len(valid), queued, execution.seconds)
        for turn, row in zip(turns, rows, strict=True):
            if row in errors:
                self._failed(turn, for_row(errors[row]))
                continue
            try:
                self._inputs.keep(turn.sequence, outputs, row)
                answer = self._outlet.row(outputs, row, turn.prepared)
            except Exception:  # a bad output fails its own turn only
                self._failed(turn, unreadable())
                continue
            self._delivery.answer(turn, answer)
            self._over(turn)

    def executed(self, execution: Execution, turns: list[Turn]) -> None:
        """Handle the execution of a list of requests; each turn ends separately."""
        self._curve.observe(execution.rows, execution.seconds)
        valid = [turn for turn in turns if turn.valid]
        if valid:
            queued = sum([execution.started - turn.arrived for turn in valid])
            self._recorder.executed(len(valid), len(valid), queued, execution.seconds)

    def ended(self, turn: Turn, outcome: ModelOutputs | Exception | None) -> None:
        """Handle the final response of a turn that was executed whole."""
        if turn.waiting:  # its copy is lost before it was executed again
            turn.waiting = False
            turn.sequence.turns.remove(turn)
        if outcome is None and turn.responses is None and turn.valid:
            outcome = BackendError("The model has sent no response to this request.", code="model_failed")
        if isinstance(outcome, Exception):
            self._failed(turn, outcome if isinstance(outcome, InferenceError) else for_caller(outcome))
        else:
            self._delivery.answer(turn, outcome or [])
            self._over(turn)
        self._settle()
        self._go_on_soon()

    def rescheduled(self, turn: Turn) -> None:
        """Execute a turn again, as the next of its sequence."""
        if turn.done():
            if turn.request is not None:
                turn.request.leave()
            return
        turn.start = False
        turn.waiting = True
        turn.sequence.running = False
        turn.sequence.started = True
        turn.sequence.turns.appendleft(turn)
        self._go_on_soon()

    def failed(self, turns: list[Turn], error: BaseException) -> None:
        for turn in turns:
            self._failed(turn, for_caller(error))

    def _failed(self, turn: Turn, error: InferenceError) -> None:
        """Fail a turn. The sequence stays unchanged, unless the turn began or ended it."""
        self._delivery.fail(turn, error)
        if turn.start:
            turn.sequence.running = False
            self._close(turn.sequence, f"The first request of sequence {turn.sequence.id!r} failed: start it again.")
        else:
            self._over(turn)

    def _over(self, turn: Turn) -> None:
        sequence = turn.sequence
        sequence.running = False
        sequence.started = True
        if turn.end:
            self._close(sequence)
        else:
            self._quit_if_last(sequence)

    def lost(self, lane: Lane) -> None:
        """Handle the loss of a copy with its state. States that the runtime stores continue on the replacement."""
        if self._inputs.has_state:
            return
        self.failed(lane.drop(), InstanceLost())
        for sequence in list(lane.slots):
            if sequence.started:
                why = f"The copy of the model with the state of sequence {sequence.id!r} died: start it again."
                self._close(sequence, why, "sequence_lost")

    def _replaced(self, lane: Lane) -> None:
        self.lost(lane)
        self._go_on_soon()


def _ignore(turn: asyncio.Future[list[Tensor]]) -> None:
    """Retrieve the exception of a turn that no caller awaits."""
    if not turn.cancelled():
        turn.exception()
