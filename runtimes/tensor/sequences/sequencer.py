"""The scheduler of sequences: one copy of the model computes all requests of a sequence, in order."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from collections.abc import Sequence as Copies
from math import inf

from adapters.errors import CallerError, CapacityError, DeadlineError
from adapters.tensors import Inference, Tensor
from runtimes.tensor.backends.base import Instance
from runtimes.tensor.configuration.model_config import ModelConfig
from runtimes.tensor.scheduling.deadlines import Deadlines
from runtimes.tensor.scheduling.intake import Intake
from runtimes.tensor.scheduling.pending import Pending
from runtimes.tensor.scheduling.queue_rules import LONGEST_WAIT
from runtimes.tensor.scheduling.recorder import Recorder
from runtimes.tensor.scheduling.responses import Responses
from runtimes.tensor.sequences.lifecycle import SequenceLifecycle
from runtimes.tensor.sequences.sequence import Turn, place_of

MAX_TURNS = 256
"""Requests that wait in one sequence."""


class Sequencer(SequenceLifecycle):
    """The scheduler of models with `sequence_batching`."""

    def __init__(self, config: ModelConfig, instances: Copies[Instance], recorder: Recorder | None = None) -> None:
        super().__init__(config, instances, recorder)
        self._intake = Intake(config)
        self._longest = LONGEST_WAIT + config.execution_timeout
        self._deadlines = Deadlines(self._loop, self.now, self._end_overdue)

    @property
    def waiting(self) -> int:
        return sum(len(sequence.turns) for sequence in self._sequences)

    @property
    def computing(self) -> int:
        return sum(len(lane.begun()) for lane in self._lanes)

    @property
    def is_idle(self) -> bool:
        return not self._sequences

    def holds(self, sequence: int | str) -> bool:
        return self._sequences.holds(sequence)

    def infer(self, inference: Inference, deadline: float = inf) -> asyncio.Future[list[Tensor]]:
        """See `Scheduler`. A request that does not fit the state of its sequence is a `CallerError`."""
        if self._closed:
            raise CapacityError("The model is being unloaded.", code="model_unloading")
        place = place_of(inference)
        self._inputs.check(place.id)
        prepared = self._intake.read(inference)
        if prepared.rows != 1:
            raise CallerError(
                f"The request has {prepared.rows} rows, and a request of a sequence has 1: use a sequence for each row."
            )
        now = self.now()
        if deadline <= now:
            raise DeadlineError("The request arrived after its deadline.")
        sequence = self._sequences.of(place, now)
        if len(sequence.turns) >= MAX_TURNS:
            raise CapacityError(
                f"{MAX_TURNS} requests of sequence {place.id!r} wait already; wait for answers.", code="queue_full"
            )
        due = min(deadline, now + self._longest)
        turn = Turn(self._loop, self, prepared, now, due, sequence, place)
        if place.start and self._inputs.has_end_control:
            sequence.nothing = self._inputs.nothing(prepared)
        self._delivery.enter(turn)
        self._deadlines.by(due)
        self._append(turn)
        return turn

    def stream(self, inference: Inference, deadline: float = inf) -> Responses:
        """The same as a stream of one response."""
        return Responses(self.infer(inference, deadline))

    async def drain(self) -> None:
        """Return when no sequence is open; idle sequences end by themselves."""
        await self._quiet.wait()

    async def aclose(self) -> None:
        """End all sequences, and what waits in them. What is being computed ends with its instance. Idempotent."""
        self._closed = True
        for timers in (self._deadlines, self._idle):
            timers.stop()
        for wake in self._wakes.values():
            wake.cancel()
        for sequence in self._sequences:
            self._close(sequence, "The model was unloaded before the request's turn.", "model_unloading")

    # ── what takes too long ───────────────────────────────────────────────────────────────────────────

    def _end_overdue(self, now: float) -> float:
        next_ = inf
        for turn in list(self._unanswered()):
            if turn.due <= now:
                turn.fail(DeadlineError("The request's deadline passed before its answer was ready."))
                self.withdraw(turn)
            elif not turn.done():
                next_ = min(next_, turn.due)
        return next_

    def _unanswered(self) -> Iterator[Pending]:
        for sequence in self._sequences:
            yield from sequence.turns
        for lane in self._lanes:
            yield from lane.begun()
        yield from self._delivery
