"""One copy of a model, and the sequences that are bound to it."""

from __future__ import annotations

import functools
import logging
from collections import deque
from heapq import heappop, heappush
from typing import Protocol

from runtimes.tensor.backends.base import Batch, Instance, InstanceLost, RowsFailed, Tensors
from runtimes.tensor.scheduling.pending import Execution
from runtimes.tensor.sequences.choice import Chooser
from runtimes.tensor.sequences.inputs import SequenceInputs
from runtimes.tensor.sequences.sequence import RequestSequence, Turn

_LOG = logging.getLogger(__name__)


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
