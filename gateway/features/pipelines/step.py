"""One step of a sequence: resolves its inputs, bounds its time, records it, and handles its failure."""

from __future__ import annotations

from adapters.call import StepTrace
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
from config.schema.pipelines.pipeline import StepConfig
from gateway.features.pipelines.scope import REQUEST, Output, PipelineNode, StepScope

_FAILED = "The step `"
"""The beginning of a message that already names a step."""


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
