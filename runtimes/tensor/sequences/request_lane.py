"""A lane of a model that receives requests whole: each turn ends separately, and may be executed again."""

from __future__ import annotations

import asyncio
import functools
import logging
from typing import Protocol, cast

from adapters.tensors import Inference
from runtimes.tensor.backends.base import InstanceLost, RequestInstance, Tensors
from runtimes.tensor.configuration.model_config import ModelConfig
from runtimes.tensor.requests.open_request import OpenRequest, tensor_of
from runtimes.tensor.requests.outcomes import ModelOutputs
from runtimes.tensor.scheduling.failures import for_caller
from runtimes.tensor.scheduling.lane import Lane, LaneOwner
from runtimes.tensor.scheduling.pending import Execution, Pending, PreparedRequest
from runtimes.tensor.sequences.choice import Chooser
from runtimes.tensor.sequences.inputs import SequenceInputs
from runtimes.tensor.sequences.sequence import Turn

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
