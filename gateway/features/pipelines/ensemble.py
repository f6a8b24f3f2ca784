"""The node `ensemble`: several members answer at once, and their answers become one."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import NamedTuple

from adapters.dataflow import all_ended
from adapters.errors import InferenceError, StepFailed
from config.schema.pipelines.pipeline import EnsembleConfig
from gateway.features.pipelines.combined import Answered, UnfitError, combined, settled
from gateway.features.pipelines.part import run_part
from gateway.features.pipelines.scope import Bound, Estimate, Output, PipelineNode, StepScope
from policies.pipelines.votes import Voter, quorum, units


class EnsembleMember(NamedTuple):
    """A node, its name, and its weight in units of `policies.pipelines.votes`."""

    name: str
    node: PipelineNode
    weight: int


class EnsembleNode:
    """Waits for all members, but no longer than needed.

    It ends once the result cannot change (a vote that is decided, the first answer), and after `within` as soon as
    `need` members have answered. A member that fails, or whose answer cannot be combined, counts as absent. Members
    that still run are then cancelled.
    """

    def __init__(self, config: EnsembleConfig, nodes: Sequence[PipelineNode]) -> None:
        self._members = [
            EnsembleMember(member.label, node, units(member.weight))
            for member, node in zip(config.members, nodes, strict=True)
        ]
        self._config = config

    async def run(self, scope: StepScope) -> Output:
        round_ = _Round(self._members, self._config, scope)
        try:
            await round_.run()
        finally:
            await round_.end()
        return round_.result()

    def bound(self, estimate: Estimate) -> Bound:
        bound = Bound()
        for member in self._members:
            bound += member.node.bound(estimate)
        return bound


class _Round:
    """The members of one request."""

    def __init__(self, members: Sequence[EnsembleMember], config: EnsembleConfig, scope: StepScope) -> None:
        self._members = members
        self._config = config
        self._scope = scope
        self._answered: list[Answered] = []
        self._error: InferenceError | None = None
        self._running = {
            asyncio.ensure_future(run_part(member.node, scope, member.name, is_read=True)): index
            for index, member in enumerate(members)
        }
        self._result: Output | None = None

    async def run(self) -> None:
        """Wait until the result is certain. Raises the first failure if too few members can answer."""
        clock, within, need = self._scope.clock, self._config.within, self._config.least
        end, late = None if within is None else clock() + within, False
        while self._running and self._result is None:
            if late and self._combine():
                return
            timeout = None if end is None or late else max(end - clock(), 0)
            done, _ = await asyncio.wait(self._running, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
            late = late or not done  # not by the clock, which a timer may precede by its resolution
            for task in done:
                self._take(task, self._running.pop(task))
            if quorum(len(self._answered), len(self._running), need) == "lost":
                raise self._failure()
            if done:
                self._settle_early()
        if self._result is None and not self._combine():
            raise self._failure()

    def _take(self, task: asyncio.Future[Output], index: int) -> None:
        member, error = self._members[index], task.exception()
        if error is None:
            self._answered.append(Answered(member.name, task.result(), member.weight, index))
        elif not isinstance(error, InferenceError):
            raise error
        elif self._error is None:
            self._error = error

    def _settle_early(self) -> None:
        """End the round if no further answer can change its result."""
        if len(self._answered) < self._config.least:
            return
        missing = [Voter(self._members[index].weight, index) for index in self._running.values()]
        self._result = settled(self._config.combine, self._answered, missing)

    def _combine(self) -> bool:
        """Combine the answers, without those that cannot be; False if too few are left."""
        while len(self._answered) >= self._config.least:
            try:
                self._result = combined(self._config, self._answered)
                return True
            except UnfitError as error:
                fault = StepFailed(f"The answers cannot be combined: {error}.", step=self._scope.path)
                self._error = self._error or fault
                left = [each for each in self._answered if each.member != error.member]
                if len(left) == len(self._answered):
                    raise fault from None
                self._answered = left
        return False

    def _failure(self) -> InferenceError:
        message = f"{len(self._answered)} members answered, and {self._config.least} are needed."
        return self._error or StepFailed(message, step=self._scope.path)

    async def end(self) -> None:
        """Cancel the members that still run, and wait for their end."""
        for task in self._running:
            task.cancel()
        try:
            await all_ended(self._running)
        finally:
            for task in self._running:
                if not task.cancelled():
                    task.exception()  # mark it as retrieved

    def result(self) -> Output:
        """The combined output."""
        assert self._result is not None
        return self._result
