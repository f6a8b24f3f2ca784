"""One request of an ensemble with decoupled models: each response of such a model passes through the steps behind it.

Responses pass at the same time, up to `WINDOW` of them, and leave in their order.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import Final

from adapters.errors import InferenceError
from adapters.tensors import Tensor
from runtimes.tensor.ensembles.execution import EnsembleRun, Values
from runtimes.tensor.ensembles.outcomes import renamed
from runtimes.tensor.ensembles.sequence_override import SequenceOverrides
from runtimes.tensor.ensembles.stages import PreparedStep
from runtimes.tensor.scheduling.responses import Responses

WINDOW: Final = 8
"""Responses of one decoupled step that are between it and the client."""


class Valve:
    """Passes responses to their reader while it reads. It is the `StreamControl` of `Responses`."""

    def __init__(self) -> None:
        self._open = asyncio.Event()
        self._open.set()

    def pause(self) -> None:
        self._open.clear()

    def resume(self) -> None:
        self._open.set()

    def stop(self) -> None:
        """Do nothing: the future of the writing task cancels it."""

    async def opened(self) -> None:
        await self._open.wait()


class StreamExecution:
    """One request with any number of responses."""

    def __init__(self, execution: EnsembleRun) -> None:
        self._execution = execution
        self._stages = execution.request.plan.stages
        self._valve = Valve()
        self.responses: Responses | None = None
        """Set before the request runs."""

    async def run(self) -> list[Tensor]:
        """Push all responses; the result is empty."""
        assert self.responses is not None
        self.responses.begun(self._valve)
        with self._execution:
            try:
                await self._stage(0, self._execution.inputs(), SequenceOverrides(), None)
            except BaseExceptionGroup as group:
                raise _first(group) from None
        return []

    async def _stage(
        self, at: int, values: Mapping[str, Tensor], overrides: SequenceOverrides, before: asyncio.Task[None] | None
    ) -> None:
        """Run a stage for one response of the stage before it, and deliver the results.

        `before` delivers the previous response.
        """
        stage = self._stages[at]
        if stage.plan.steps:
            values = await self._execution.advance(stage, values, overrides)
        if stage.source is not None:
            await self._spread(at, self._responses(stage.source, values, overrides), before)
            return
        if before is not None:
            await asyncio.wait((before,))
        await self._deliver(values)

    async def _spread(
        self,
        at: int,
        computed: AsyncGenerator[tuple[Values, SequenceOverrides], None],
        before: asyncio.Task[None] | None,
    ) -> None:
        """Run the next stage for each response of a decoupled step."""
        window = asyncio.Semaphore(WINDOW - 1)
        following = self._stages[at + 1]
        is_last = following.source is None and not following.plan.steps
        if is_last and before is not None:
            await asyncio.wait((before,))
        async with asyncio.TaskGroup() as group, aclosing(computed) as responses:
            try:
                async for outputs, overrides in responses:
                    if is_last:
                        await self._deliver(outputs)
                        continue
                    before = group.create_task(self._stage(at + 1, outputs, overrides, before))
                    before.add_done_callback(lambda _: window.release())
                    await window.acquire()
            except InferenceError:
                if before is not None:  # the responses before the failure are delivered first
                    await asyncio.wait((before,))
                raise

    async def _responses(
        self, source: PreparedStep, values: Mapping[str, Tensor], overrides: SequenceOverrides
    ) -> AsyncGenerator[tuple[Values, SequenceOverrides], None]:
        """The responses of a decoupled step, by the names of the ensemble, each with the sequence that it names."""
        execution = self._execution
        program, due = execution.program, execution.request.due
        try:
            async with program.room(source, due):
                inference = execution.inference(source, values, overrides)
                stream = program.calls.stream(inference, due, execution.leased(source))
                async with aclosing(stream):
                    async for computed in stream:
                        execution.device_seconds += computed.device_seconds
                        yield renamed(source, computed.outputs), overrides.behind(source, computed.parameters)
        except InferenceError as error:
            raise program.failure(source, error) from None

    async def _deliver(self, values: Mapping[str, Tensor]) -> None:
        assert self.responses is not None
        answer = self._execution.answer(values)
        await self._valve.opened()
        self.responses.push(answer)


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """The error that ended the others."""
    error = group.exceptions[0]
    return _first(error) if isinstance(error, BaseExceptionGroup) else error
