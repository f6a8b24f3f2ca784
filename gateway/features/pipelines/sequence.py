"""The node `steps`: runs each step as soon as its values are available."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from adapters import dataflow
from adapters.dataflow import Dataflow
from adapters.errors import StepFailed
from config.graph import GraphStep
from gateway.features.pipelines.scope import REQUEST, Bound, Estimate, Output, StepScope
from gateway.features.pipelines.step import Step


class SequenceNode:
    """A graph of steps. Its output is that of its last step, or the values that `out` selects.

    Steps without references to each other run at the same time. A step whose input is absent, because a step was
    skipped, is skipped too. `out` leaves out the values of skipped steps, unless it has no others.
    """

    def __init__(self, steps: Sequence[Step], out: Mapping[str, str]) -> None:
        self._steps = {step.name: step for step in steps}
        self._out = out
        self._last = "" if out else steps[-1].name
        graph = [
            GraphStep(step.name, tuple(sorted(name for name in step.refers_to if name in self._steps)), (step.name,))
            for step in steps
        ]
        final = {name for reference in out.values() if (name := reference.partition(".")[0]) != REQUEST}
        self._live = _tail(steps, self._last)
        self._plan = Dataflow(graph).plan(frozenset(final or {self._last}))
        self._final = final

    async def run(self, scope: StepScope) -> Output:
        streams: list[Output] = []
        try:
            return await self._run(scope, streams)
        except BaseException:
            for output in streams:
                await output.aclose()
            raise

    async def _run(self, scope: StepScope, streams: list[Output]) -> Output:
        given = dict(scope.outputs)
        outcome = await dataflow.run(self._plan, {}, partial(self._start, scope, given, streams))
        produced = {**given, **outcome.values}
        if not self._out:
            return self._required(self._last, outcome.values)
        inner = scope.inner(outputs=produced)
        absent = self._final - produced.keys()
        out = {name: each for name, each in self._out.items() if each.partition(".")[0] not in absent}
        if not out:
            self._required(min(absent), produced)
        values = {name: await inner.value(reference) for name, reference in out.items()}
        return Output(values, has_names=len(self._out) > 1)

    async def _start(
        self,
        scope: StepScope,
        given: Mapping[str, Output],
        streams: list[Output],
        step: GraphStep,
        inputs: Mapping[str, Output],
    ) -> Mapping[str, Output]:
        """Run one step. `streams` receives outputs that may be streams, which a failure of the sequence closes."""
        is_live = scope.is_live and step.name in self._live
        output = await self._steps[step.name].run(scope.inner(outputs={**given, **inputs}, is_live=is_live))
        if output is None:
            return {}
        if is_live:
            streams.append(output)
        return {step.name: output}

    def _required(self, name: str, outputs: Mapping[str, Output]) -> Output:
        if name not in outputs:
            raise StepFailed(f"The step `{name}`, whose output is the answer, was skipped.", step=name)
        return outputs[name]

    def bound(self, estimate: Estimate) -> Bound:
        total = Bound()
        for step in self._steps.values():
            total += step.node.bound(estimate)
        return total


def _tail(steps: Sequence[Step], last: str) -> frozenset[str]:
    """The steps whose answers may be streams: the last one and, if it guards an answer, the step that it guards."""
    tail = set[str]()
    by_name = {step.name: step for step in steps}
    while (step := by_name.get(last)) is not None:
        tail.add(last)
        subject = getattr(step.node, "subject", "")
        if not subject or by_name[subject].is_read:
            break
        last = subject
    return frozenset(tail)
