"""Models that answer a request with any number of responses: one request at a time on each copy."""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Sequence
from math import inf

from adapters.errors import CallerError
from adapters.tensors import Inference, Tensor
from runtimes.tensor.configuration.model_config import ModelConfig
from runtimes.tensor.interfaces import Instance, StreamControl, Tensors
from runtimes.tensor.scheduling.dispatcher import Dispatcher
from runtimes.tensor.scheduling.outlet import ResponseOutlet
from runtimes.tensor.scheduling.pending import Execution, Pending, Recorder, for_caller, unreadable
from runtimes.tensor.scheduling.responses import Responses

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
