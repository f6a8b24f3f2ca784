"""The node `cascade`: cheap models first, and a more expensive one where their answer is not acceptable."""

from collections.abc import Sequence
from typing import NamedTuple

from adapters import offload
from adapters.answer import Answer
from adapters.errors import CallerError, ClientGone, ContextTooLong, DeadlineError, InferenceError
from adapters.requests import CompletionRequest, GenerateRequest
from gateway.features.pipelines.bodies import body_without_logprobs
from gateway.features.pipelines.conditions import Condition
from gateway.features.pipelines.model import ModelNode
from gateway.features.pipelines.scope import Bound, Estimate, Output, PipelineNode, StepScope, total
from gateway.features.pipelines.steps import run_part
from gateway.traffic.generated_text import HeldStream


class CascadeStage(NamedTuple):
    """A node, the condition under which its answer is accepted, and the tokens of a stream that are held for it."""

    name: str
    node: PipelineNode
    condition: Condition | None
    hold: int | None


class CascadeNode:
    """Runs the stages in order until an answer is accepted.

    A stage that fails after its own retries and fallbacks is passed over, unless the request itself is wrong. The
    answer of a stage is never replaced after its first token has reached the client.
    """

    def __init__(self, stages: Sequence[CascadeStage]) -> None:
        self._stages = stages

    async def run(self, scope: StepScope) -> Output:
        *earlier, last = self._stages
        for index, stage in enumerate(earlier):
            try:
                output = await self._accepted(stage, scope)
            except InferenceError as error:
                if not _passes(error):
                    raise
                output = None
            if output is not None:
                return _chosen(output, index, scope)
            if scope.call.step is not None:
                scope.call.step.escalations += 1
        output = await run_part(last.node, scope, last.name, is_live=scope.is_live)
        return _chosen(output, len(earlier), scope)

    async def _accepted(self, stage: CascadeStage, scope: StepScope) -> Output | None:
        """The answer of a stage; None if it is not accepted, and is then cancelled."""
        condition = stage.condition
        assert condition is not None
        adds = condition.reads_logprobs and isinstance(stage.node, ModelNode) and not _requests_logprobs(scope)
        field = 1 if isinstance(scope.request.request, CompletionRequest) else True  # the APIs differ
        inputs = {**(scope.inputs or {}), "logprobs": field} if adds else None
        is_text = isinstance(scope.request.request, GenerateRequest)  # of tensors, the condition reads whole answers
        output = await run_part(stage.node, scope, stage.name, inputs=inputs, is_live=scope.is_live and is_text)
        try:
            if output.answer is not None and output.answer.body is None:
                held = HeldStream(output.answer, strip=adds)
                output = _as_output(held, output)
                await held.hold(stage.hold)
                values = held.text.values()
            else:
                values = await output.read()
            if await condition.accepts(scope, values):
                return await _stripped(output) if adds else output
        except BaseException:
            await output.aclose()
            raise
        await output.aclose()
        if output.trace is not None:
            output.trace.outcome = "rejected"
        return None

    def bound(self, estimate: Estimate) -> Bound:
        return total((stage.node for stage in self._stages), estimate)


def _chosen(output: Output, index: int, scope: StepScope) -> Output:
    if scope.call.step is not None:
        scope.call.step.branch = index
    return output


def _as_output(answer: Answer, of: Output) -> Output:
    made = Output(answer=answer)
    made.trace = of.trace
    return made


def _passes(error: InferenceError) -> bool:
    """Whether the next stage may succeed where a stage failed."""
    if isinstance(error, ContextTooLong):
        return True
    return not isinstance(error, CallerError | ClientGone | DeadlineError)


def _requests_logprobs(scope: StepScope) -> bool:
    """Whether the client requests log-probabilities itself."""
    request = scope.request.request
    raw = request.fields.get("logprobs") if isinstance(request, GenerateRequest) else None
    return raw is not None and bytes(raw) not in (b"null", b"false")


async def _stripped(output: Output) -> Output:
    """A whole answer without the log-probabilities that only the condition needed."""
    answer = output.answer
    if answer is None or answer.body is None or answer.form.wire != "openai":
        return output
    answer.body = await offload.parse(answer.body, body_without_logprobs, answer.body)
    return output
