"""The node `steps`: runs each step as soon as its values are available.

A step resolves its inputs, bounds its time, records itself, and handles its failure. A part of another node, such as a
member of an ensemble, is recorded like a step.
"""

from collections.abc import Mapping, Sequence
from functools import partial

from adapters import dataflow
from adapters.call import StepTrace
from adapters.dataflow import Dataflow
from adapters.errors import (
    BudgetExceeded,
    CallerError,
    ClientGone,
    ContentFiltered,
    DeadlineError,
    InferenceError,
    NotFound,
    StepFailed,
)
from config.graph import GraphStep
from config.schema.pipelines.pipeline import StepConfig
from gateway.features.pipelines.scope import REQUEST, Bound, Estimate, Output, PipelineNode, StepScope, total
from gateway.features.pipelines.values import Values

_FAILED = "The step `"
"""The beginning of a message that already names a step."""


async def run_part(
    node: PipelineNode,
    scope: StepScope,
    name: str,
    *,
    inputs: Values | None = None,
    is_read: bool = False,
    is_live: bool = False,
) -> Output:
    """Run a node as a part of the node of `scope`. `is_read`: its values are needed. Raises `InferenceError`."""
    inner = scope.inner(inputs=inputs, name=name, is_live=is_live)
    return await run_recorded(node, inner, inner.path, is_read=is_read)


async def run_recorded(node: PipelineNode, scope: StepScope, name: str, *, is_read: bool = False) -> Output:
    """Run a node in a new scope, with a record of this name. Raises `InferenceError`."""
    trace, started = scope.call.trace.step(scope.pipeline, name, scope.call.step), scope.clock()
    scope.call = scope.call.of_step(trace, scope.call.deadline)
    try:
        output = await node.run(scope)
        if is_read:
            await output.read()
    except InferenceError as error:
        trace.outcome, trace.error = "failed", error.kind
        raise
    else:
        trace.outcome, output.trace = "ok", trace
        return output
    finally:
        trace.end(started, scope.clock())


class Step:
    """A named node. `refers_to` are the steps whose outputs it needs; `is_read`: other parts need its values."""

    def __init__(self, config: StepConfig, node: PipelineNode, refers_to: frozenset[str], *, is_read: bool) -> None:
        self.name = config.name
        self.node = node
        self.is_read = is_read
        self.refers_to = refers_to
        self._inputs = config.inputs
        self._on_error = config.on_error
        self._at_least = config.at_least
        self._effects = config.effects

    async def run(self, scope: StepScope) -> Output | None:
        """Return the output; None if the step failed and the pipeline continues without it. Raises `InferenceError`."""
        trace, started = scope.call.trace.step(scope.pipeline, self._path(scope), scope.call.step), scope.clock()
        try:
            output = await self._run(scope, trace, started)
            trace.outcome = "ok"
            return output
        except InferenceError as error:
            trace.error = error.kind
            failure = self._of(error, scope)
            trace.blocked = isinstance(error, ContentFiltered)
            if self._is_final(error):
                trace.outcome = "failed"
                raise failure from None
            trace.outcome = "skipped" if self._on_error.use is None else "used"
            return None if self._on_error.use is None else Output(self._on_error.use)
        finally:
            trace.end(started, scope.clock())

    async def _run(self, scope: StepScope, trace: StepTrace, now: float) -> Output:
        left = scope.call.deadline.at - now
        if left <= (self._at_least or 0):
            raise DeadlineError(f"The request has {max(left, 0) * 1000:.0f} ms left, too little for this step.")
        inputs = None
        if self._inputs:
            inputs = {name: await scope.value(reference) for name, reference in self._inputs.items()}
        call = scope.call.of_step(trace, scope.call.deadline)
        call.repeatable = call.repeatable and not self._effects
        output = await self.node.run(scope.inner(call=call, inputs=inputs, name=self.name, is_live=scope.is_live))
        if self.is_read:
            await output.read()
        return output

    def _is_final(self, error: InferenceError) -> bool:
        """Whether the failure of the step fails the pipeline. A block by a guard always does."""
        fails = self._on_error.use is None and self._on_error.action == "fail"
        return fails or isinstance(error, ClientGone | ContentFiltered)

    def _path(self, scope: StepScope) -> str:
        return f"{scope.path}.{self.name}" if scope.path else self.name

    def _of(self, error: InferenceError, scope: StepScope) -> InferenceError:
        """The failure as the client receives it: it names the step.

        A mistake in the request stays the client's. A request that this pipeline made from other steps' outputs, and a
        model that the step's server does not have, are not the client's mistakes.
        """
        path = self._path(scope)
        if isinstance(error, ContentFiltered | BudgetExceeded):
            return error
        made = any(not each.startswith(f"{REQUEST}.") for each in self._inputs.values())
        if isinstance(error, NotFound) or (made and isinstance(error, CallerError)):
            return StepFailed(f"{_FAILED}{path}` failed: {error.message}", step=path)
        if not isinstance(error, CallerError | ClientGone) and not error.message.startswith(_FAILED):
            error.message = f"{_FAILED}{path}` failed: {error.message}"
        return error


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
        return total((step.node for step in self._steps.values()), estimate)


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
