"""One copy of a model, with the sequences that are bound to it; and a lane of a model that receives requests whole:
each turn ends separately, and may be executed again."""

from __future__ import annotations

import asyncio
import functools
import logging
from collections import deque
from heapq import heappop, heappush
from typing import Protocol, cast

from adapters.tensors import Inference
from runtimes.tensor.configuration.model_config import ModelConfig
from runtimes.tensor.interfaces import Batch, Instance, InstanceLost, RequestInstance, RowsFailed, Tensors
from runtimes.tensor.requests.open_request import OpenRequest, tensor_of
from runtimes.tensor.requests.outcomes import ModelOutputs
from runtimes.tensor.scheduling.pending import Execution, Pending, PreparedRequest, for_caller
from runtimes.tensor.sequences.inputs import SequenceInputs
from runtimes.tensor.sequences.sequence import Chooser, RequestSequence, Turn


class LaneOwner(Protocol):
    """The owner of the sequences."""

    def now(self) -> float: ...

    def computed(self, execution: Execution, turns: list[Turn], result: Tensors | RowsFailed, rows: list[int]) -> None:
        """Deliver the rows of computed turns."""
        ...

    def failed(self, turns: list[Turn], error: BaseException) -> None: ...

    def lost(self, lane: Lane) -> None:
        """Handle the loss of the copy, with its state."""
        ...

    def wake(self, lane: Lane, when: float) -> None: ...


class Lane:
    """Runs one batch at a time. `slots` has the sequences that are open here, each with its slot."""

    def __init__(self, instance: Instance, chooser: Chooser, inputs: SequenceInputs, owner: LaneOwner) -> None:
        self.instance = instance
        self.slots: dict[RequestSequence, int] = {}
        self._free = list(range(chooser.slots))  # a heap: low ones first, so that batches have few gaps
        self.running: list[Turn] = []
        self._chooser = chooser
        self._inputs = inputs
        self._owner = owner
        self._busy = False
        self._going_on = False
        self._again: deque[list[Turn]] = deque()
        """Parts of batches that failed."""

    @property
    def room(self) -> tuple[bool, int]:
        """Whether the copy is ready, and the number of free slots."""
        return self.instance.ready, len(self._free)

    def take(self, sequence: RequestSequence) -> None:
        """Assign a free slot to the sequence. One must be free."""
        self.slots[sequence] = heappop(self._free)

    def leave(self, sequence: RequestSequence) -> None:
        heappush(self._free, self.slots.pop(sequence))

    def begun(self) -> list[Turn]:
        """All turns that have been taken from their sequence's line."""
        return [*self.running, *(turn for part in self._again for turn in part)]

    def drop(self) -> list[Turn]:
        """Remove the turns that would have been computed again."""
        dropped = [turn for part in self._again for turn in part]
        self._again.clear()
        return dropped

    def go_on(self) -> None:
        """Compute the waiting requests if the copy is idle."""
        if self._going_on:
            return
        self._going_on = True
        try:
            while self.instance.ready and not self._busy and (turns := self._next()):
                self._run(turns)
        finally:
            self._going_on = False

    def _next(self) -> list[Turn]:
        if self._again:
            return self._again.popleft()
        heads = [sequence.turns[0] for sequence in self.slots if sequence.turns]
        if not heads:
            return []
        turns, wake_at = self._chooser.choose(heads, len(self.slots), self._owner.now())
        for turn in turns:
            turn.sequence.turns.popleft()
            turn.sequence.running = True
            turn.waiting = False
        if not turns:
            self._owner.wake(self, wake_at)
        return turns

    def _run(self, turns: list[Turn]) -> None:
        members, rows = self._members(turns)
        execution = Execution(self._owner.now(), len(members))
        for turn in turns:
            turn.execution = execution
        self.running = turns
        self._busy = True
        done = functools.partial(self._done, execution, turns, rows)
        try:
            self.instance.start(Batch(members, [1] * len(members)), done)
        except Exception as error:
            _LOG.exception("instance %s could not take a batch", self.instance.name)
            done(error)

    def _members(self, turns: list[Turn]) -> tuple[list[Tensors], list[int]]:
        """The rows of a batch, and the turn of each. With a `ready` control a row is a slot."""
        if not (self._chooser.direct and self._inputs.has_ready_control):
            return [self._inputs.of(turn) for turn in turns], list(range(len(turns)))
        rows = [self.slots[turn.sequence] for turn in turns]
        padding = self._inputs.padding(self._inputs.of(turns[0]))
        members: list[Tensors] = [padding] * (max(rows) + 1)
        for turn, row in zip(turns, rows, strict=True):
            members[row] = self._inputs.of(turn)
        return members, rows

    def _done(self, execution: Execution, turns: list[Turn], rows: list[int], result: Tensors | BaseException) -> None:
        execution.seconds = self._owner.now() - execution.started
        self.running = []
        self._busy = False
        if not isinstance(result, BaseException) or isinstance(result, RowsFailed):
            self._owner.computed(execution, turns, result, rows)
        elif isinstance(result, InstanceLost):
            self._owner.failed(turns, result)
            self._owner.lost(self)
        elif len(turns) > 1:
            middle = len(turns) // 2
            self._again.extendleft((turns[middle:], turns[:middle]))
        else:
            self._owner.failed(turns, result)
        self.go_on()


_LOG = logging.getLogger(__name__)


class RequestLaneOwner(LaneOwner, Protocol):
    """The owner of the sequences."""

    @property
    def loop(self) -> asyncio.AbstractEventLoop: ...

    def withdraw(self, pending: Pending) -> None: ...

    def executed(self, execution: Execution, turns: list[Turn]) -> None:
        """Handle the return of `execute`."""
        ...

    def ended(self, turn: Turn, outcome: ModelOutputs | Exception | None) -> None:
        """Handle the final response of a turn; a stream has received it already."""
        ...

    def rescheduled(self, turn: Turn) -> None:
        """Handle a turn that the model executes again."""
        ...


class TurnRequest(OpenRequest):
    """A turn as its copy executes it; without one, a row that fills a slot."""

    __slots__ = ("lane", "outcome", "turn")

    def __init__(self, lane: RequestLane, turn: Turn | None, prepared: PreparedRequest, inference: Inference) -> None:
        loop = lane.owner.loop
        super().__init__(loop, lane.owner, prepared, inference, lane.owner.now())
        self.lane = lane
        self.turn = turn
        self.outcome: ModelOutputs | Exception | None = None
        if turn is not None:
            self.due = turn.due
            self.responses = turn.responses

    def responded(self, outputs: ModelOutputs) -> None:
        if self.responses is None:
            self.outcome = outputs
        elif self.turn is not None and not self.turn.done():
            self.push(outputs)
        self._ended = outputs.final

    def ended(self) -> None:
        self._ended = True

    def failed(self, error: Exception, *, final: bool = True) -> None:
        self._ended = final
        self.outcome = error
        if not final and self.turn is not None:
            self.turn.fail(error)
            self.leave()

    def rescheduled(self) -> None:
        if self.turn is not None:
            self.lane.reschedule(self.turn)


class RequestLane(Lane):
    """Executes one list of turns at a time; turns of earlier lists may still be open."""

    owner: RequestLaneOwner

    def __init__(
        self,
        config: ModelConfig,
        instance: RequestInstance,
        chooser: Chooser,
        inputs: SequenceInputs,
        owner: RequestLaneOwner,
    ) -> None:
        super().__init__(instance, chooser, inputs, owner)
        self.owner = owner
        self._model = config.name
        self._datatypes = {spec.name: spec.datatype for spec in config.inputs}
        if config.sequence_batching is not None:
            self._datatypes |= {control.name: control.datatype for control in config.sequence_batching.controls}
        self._open: dict[Turn, None] = {}

    def begun(self) -> list[Turn]:
        return list(self._open)

    def _run(self, turns: list[Turn]) -> None:
        members, rows = self._members(turns)
        of_row = dict(zip(rows, turns, strict=True))
        requests = [self._request(of_row.get(row), member) for row, member in enumerate(members)]
        execution = Execution(self.owner.now(), len(members))
        for turn in turns:
            turn.execution = execution
            self._open[turn] = None
        self._busy = True
        done = functools.partial(self._returned, execution, turns)
        try:
            cast("RequestInstance", self.instance).execute(requests, self._request_ended, done)
        except Exception as error:
            _LOG.exception("instance %s could not take requests", self.instance.name)
            for request in requests:
                request.failed(for_caller(error))
                self._request_ended(request)
            done(error)

    def _request(self, turn: Turn | None, member: Tensors) -> TurnRequest:
        inputs = [tensor_of(name, self._datatypes[name], array) for name, array in member.items()]
        inference = Inference(self._model, inputs=inputs)
        if turn is None:
            return TurnRequest(self, None, PreparedRequest(member, 1, None), inference)
        inference.id, inference.outputs = turn.inference.id, turn.inference.outputs
        inference.parameters = {
            **turn.inference.parameters,
            "sequence_id": turn.sequence.id,
            "sequence_start": turn.start,
            "sequence_end": turn.end and not turn.sequence.is_iterative,
        }
        request = turn.request
        if request is None:
            turn.request = request = TurnRequest(self, turn, turn.prepared, inference)
        else:
            request.inference = inference
        return cast("TurnRequest", request)

    def _request_ended(self, request: OpenRequest) -> None:
        turn = cast("TurnRequest", request).turn
        if turn is not None:
            self._open.pop(turn, None)
            self.owner.ended(turn, cast("TurnRequest", request).outcome)

    def reschedule(self, turn: Turn) -> None:
        self._open.pop(turn, None)
        self.owner.rescheduled(turn)

    def _returned(self, execution: Execution, turns: list[Turn], result: object) -> None:
        execution.seconds = self.owner.now() - execution.started
        self._busy = False
        if isinstance(result, InstanceLost):
            self.owner.lost(self)
        else:
            self.owner.executed(execution, turns)
        self.go_on()
