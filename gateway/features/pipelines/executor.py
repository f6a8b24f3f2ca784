"""Runs a pipeline for one request: an `Upstream` like a pool, in the place of a model's routes."""

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

from adapters import offload
from adapters.base import Answer
from adapters.call import Call
from adapters.errors import DeadlineError, Unsupported
from adapters.requests import InferRequest, ModelQuery, ModelRequest
from adapters.types import Deadline, Usage
from adapters.wire.oip import bodies as oip_bodies
from config.schema.pipelines.pipeline import NodeConfig, PipelineConfig, StepConfig
from gateway.features.pipelines.answers import PassedStream, answer_from, as_stream, has_several
from gateway.features.pipelines.bodies import with_usage
from gateway.features.pipelines.metadata import PipelineMetadata, PipelineStatistics, triton_config
from gateway.features.pipelines.request import PipelineRequest
from gateway.features.pipelines.scope import Bound, Estimate, Output, PipelineNode, StepScope
from gateway.features.pipelines.steps import run_recorded

STEPS = "x-headrace-steps"
"""The header that names the steps that did not run as configured."""


class Pipeline:
    """A compiled pipeline.

    Its answer begins with the first byte of the last step's answer. One deadline bounds all steps. A failure or a
    cancellation ends all steps before it is raised. It has no state between requests: the requests of a sequence reach
    the steps with the sequence's id, and their servers have the state.
    """

    def __init__(self, name: str, config: PipelineConfig, root: PipelineNode, clock: Callable[[], float]) -> None:
        self.name = name
        self._root = root
        self._kind = config.kinds()[0]
        self._by_row = next(_by_row(config), "")
        """A step that runs once for each row; empty without one."""
        self._deadline = config.deadline
        self.budget = config.budget
        self._clock = clock
        self._metadata = PipelineMetadata(name, config, clock)
        self._statistics = PipelineStatistics()

    async def call(self, request: ModelRequest, call: Call) -> Answer:
        if isinstance(request, ModelQuery):
            return await self._query(request, call)
        if isinstance(request, InferRequest) and request.kind == "explain":
            raise Unsupported(f"The model `{self.name}` is a pipeline, which does not explain answers.")
        if request.sequence and self._by_row:
            raise Unsupported(
                f"The step `{self._by_row}` of the model `{self.name}` computes rows one by one, which no sequence of "
                "requests has.",
                param="sequence_id",
            )
        started = self._clock()
        try:
            answer = await self._called(request, self._bounded(call))
        except BaseException:
            self._statistics.ended(self._clock() - started, request.rows, failed=True)
            raise
        self._statistics.ended(self._clock() - started, request.rows, failed=False)
        return answer

    async def _called(self, request: ModelRequest, call: Call) -> Answer:
        incoming = PipelineRequest(request, call, self._metadata.of)
        scope = StepScope(self.name, incoming, call, self._clock, is_live=True)
        try:
            async with asyncio.timeout(max(call.deadline.at - self._clock(), 0)):
                return await self._answer(incoming, await self._run(scope), call)
        except TimeoutError:
            raise DeadlineError(f"The deadline of the request passed in {_running(call)}.") from None

    async def _run(self, scope: StepScope) -> Output:
        """Run the root. A root that is not a sequence is the only step, so that its calls are recorded."""
        if self._kind == "steps":
            return await self._root.run(scope)
        return await run_recorded(self._root, scope, self._kind)

    def bound(self, estimate: Estimate) -> Bound:
        """An upper bound of a request's usage, over the most expensive path: no more than the budget."""
        bound, budget = self._root.bound(estimate), self.budget
        if budget is None:
            return bound
        tokens = bound.tokens if budget.tokens is None else min(bound.tokens, budget.tokens)
        picos = bound.picos if budget.spend is None else min(bound.picos, budget.spend.picos)
        return Bound(tokens, bound.rows, picos)

    def _bounded(self, call: Call) -> Call:
        bounded = call.part()
        if self._deadline is not None:
            at = min(call.deadline.at, self._clock() + self._deadline)
            bounded.deadline = Deadline(at, call.deadline.first_byte, call.deadline.idle)
        return bounded

    async def _answer(self, incoming: PipelineRequest, output: Output, call: Call) -> Answer:
        """The answer of the last step, or an answer made from the values of the outputs."""
        answer = output.answer
        usage = call.trace.spent(call.step)[0] or Usage()
        if answer is None or not incoming.takes(answer, is_forwarded=output.is_forwarded):
            answer = await answer_from(incoming, await output.read(), usage, has_names=output.has_names)
        elif answer.body is None:
            answer = PassedStream(answer, call)
        else:
            answer.usage = usage
            if call.step is None and answer.form.wire == "openai" and has_several(call.trace):
                answer.body = await offload.parse(answer.body, with_usage, answer.body, usage)
            answer = await as_stream(incoming.request, answer)
        if call.step is None and (unusual := _unusual(call)):  # the outermost pipeline names the steps of all
            answer.headers += ((STEPS, unusual),)
        return answer

    async def _query(self, query: ModelQuery, call: Call) -> Answer:
        """Answer a query about the pipeline by queries about its models."""
        if query.about == "ready":
            await self._metadata.ready(call)
            return Answer(content_type="application/json", body=b"{}")
        about: Any
        if query.about == "stats":
            about = self._statistics.report(self.name)
        else:
            about = await self._metadata.of(call)
            if query.about == "config":
                about = triton_config(about)
        return Answer(content_type="application/json", body=oip_bodies.encode(about))


def _by_row(config: NodeConfig) -> Iterator[str]:
    """The names of the steps that run once for each row."""
    for node in config.nodes():
        if isinstance(node, StepConfig) and node.each:
            yield node.name
        yield from _by_row(node)


def _running(call: Call) -> str:
    """The steps that run, for an error."""
    names = [step.name for step in call.trace.steps if step.outcome == "cancelled"]
    return f"the step `{names[-1]}`" if names else "the pipeline"


def _unusual(call: Call) -> str:
    """The steps that were skipped or failed, for a header: `draft=skipped, vote.b=failed`."""
    return ", ".join(f"{step.name}={step.outcome}" for step in call.trace.steps if step.outcome != "ok")
