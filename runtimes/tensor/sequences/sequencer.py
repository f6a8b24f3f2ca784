"""The scheduler of sequences: one copy of the model computes all requests of a sequence, in order."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from math import inf

from adapters.errors import CallerError, CapacityError, DeadlineError
from adapters.tensors import Inference, Tensor
from runtimes.tensor.configuration.model_config import ModelConfig
from runtimes.tensor.interfaces import Instance
from runtimes.tensor.scheduling.clock import Deadlines
from runtimes.tensor.scheduling.intake import Intake
from runtimes.tensor.scheduling.pending import Pending, Recorder
from runtimes.tensor.scheduling.queue import LONGEST_WAIT
from runtimes.tensor.scheduling.responses import Responses
from runtimes.tensor.sequences.lifecycle import SequenceLifecycle
from runtimes.tensor.sequences.sequence import SequencePlace, Turn, place_of

_FIRST_ITERATIVE = 1 << 63
"""The first id of iterative sequences, which clients do not choose."""
MAX_TURNS = 256
"""The number of requests that may wait in one sequence."""


class Sequencer(SequenceLifecycle):
    """The scheduler of models with `sequence_batching`."""

    def __init__(self, config: ModelConfig, instances: Sequence[Instance], recorder: Recorder | None = None) -> None:
        super().__init__(config, instances, recorder)
        rules = config.sequence_batching
        self._is_iterative = rules is not None and rules.iterative_sequence
        self._iterations = 0
        self._decoupled = config.decoupled
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
        """See `ModelScheduler`. A request that does not fit the state of its sequence is a `CallerError`."""
        if self._decoupled:
            raise CallerError(
                f"Model `{inference.model_name}` sends any number of responses: use a stream.", code="model_decoupled"
            )
        return self._enter(inference, deadline)

    def _new_place(self) -> SequencePlace:
        """The sequence of one iterative request."""
        self._iterations += 1
        return SequencePlace(_FIRST_ITERATIVE + self._iterations, start=True, end=True)

    def _enter(self, inference: Inference, deadline: float) -> Turn:
        if self._closed:
            raise CapacityError("The model is being unloaded.", code="model_unloading")
        place = self._new_place() if self._is_iterative else place_of(inference)
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
        turn.inference = inference
        sequence.is_iterative = self._is_iterative
        if self._decoupled:
            turn.responses = Responses(turn)
        if place.start and self._inputs.has_end_control:
            sequence.nothing = self._inputs.nothing(prepared)
        self._delivery.enter(turn)
        self._deadlines.by(due)
        self._append(turn)
        return turn

    def stream(self, inference: Inference, deadline: float = inf) -> Responses:
        """The responses: one, unless the model is decoupled."""
        turn = self._enter(inference, deadline)
        return turn.responses or Responses(turn)

    async def drain(self) -> None:
        """Return when no sequence is open; idle sequences end by themselves."""
        await self._quiet.wait()

    async def aclose(self) -> None:
        """End all sequences and their waiting requests. Requests in execution end with their instance. Idempotent."""
        self._closed = True
        for timers in (self._deadlines, self._idle):
            timers.stop()
        for wake in self._wakes.values():
            wake.cancel()
        for sequence in self._sequences:
            self._close(sequence, "The model was unloaded before the request's turn.", "model_unloading")

    # ── deadlines ───────────────────────────────────────────────────────────────────────────────────────

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
