"""The node `judge`: the best of several drafts, by the verdicts of a model."""

from __future__ import annotations

import msgspec
from msgspec import Raw

from adapters.errors import ClientGone, InferenceError, StepFailed
from adapters.wire.openai import chat as openai
from adapters.wire.text.step_template import StepTemplate, TemplateFailed
from config.schema.pipelines.judge import JudgeConfig
from gateway.pipelines.leaves.drafts import Drafts, ends_of, succeeded, text_of_draft
from gateway.pipelines.leaves.template import compiled
from gateway.pipelines.part import run_part
from gateway.pipelines.scope import Bound, Estimate, Output, StepScope
from gateway.pipelines.values import UnusableValueError, text_of
from policies.pipelines.judge import PROMPT, BestOf, Verdict, of_both_orders, parse_verdict

_encode = msgspec.json.Encoder().encode


class JudgeNode:
    """Writes all drafts at once, then compares the best so far with the next one.

    A draft that fails is left out. Equal drafts are one. A comparison that fails has no verdict, and the earlier draft
    stays the best; without any verdict, `else` decides.
    """

    def __init__(self, config: JudgeConfig) -> None:
        self._config = config
        self._drafts = Drafts(config)
        self._comparisons = (len(config.of) * config.n - 1) * (2 if config.both_orders else 1)
        self._prompt = compiled(config.prompt or PROMPT)

    async def run(self, scope: StepScope) -> Output:
        drafts = await self._drafts.written(scope)
        texts = {
            text: place for place, text in reversed([*enumerate(map(text_of_draft, drafts))])
        }  # equal texts: the first
        if len(texts) == 1:
            return drafts[0]
        places = sorted(texts.values())
        best = BestOf(places)
        error: InferenceError | None = None
        question = await _question(scope)
        while (pair := best.pair) is not None:
            try:
                first, second = text_of_draft(drafts[pair.first]), text_of_draft(drafts[pair.second])
                best.record(await self._verdict(question, first, second, scope))
            except ClientGone:
                raise
            except InferenceError as failure:
                error = error or failure
                best.record(None)
        if not best.judged and self._config.otherwise == "fail":
            raise error or StepFailed(f"The judge of the step `{scope.path}` gave no verdict.", step=scope.path)
        return drafts[best.best]

    async def _verdict(self, question: str, first: str, second: str, scope: StepScope) -> Verdict | None:
        """The verdict about two drafts. Raises the failure of the judge if it fails in all orders."""
        orders = [(first, second), (second, first)] if self._config.both_orders else [(first, second)]
        ends = await ends_of(
            run_part(_Comparison(self._config, self._prompt, question, a, b), scope, "judge", is_read=True)
            for a, b in orders
        )
        succeeded(ends)
        verdicts = [parse_verdict(text_of_draft(end)) if isinstance(end, Output) else None for end in ends]
        return of_both_orders(*verdicts) if self._config.both_orders else verdicts[0]

    def bound(self, estimate: Estimate) -> Bound:
        bound = self._drafts.bound(estimate)
        for _ in range(self._comparisons):
            bound += estimate(self._config.model)
        return bound


class _Comparison:
    """One request to the judge. It has nothing of the client's request but the question."""

    def __init__(self, config: JudgeConfig, prompt: StepTemplate, question: str, a: str, b: str) -> None:
        self._config = config
        self._prompt = prompt
        self._values = {"question": question, "a": a, "b": b}

    async def run(self, scope: StepScope) -> Output:
        try:
            content = self._prompt.render(self._values)
        except TemplateFailed as error:
            raise StepFailed(f"The prompt of the judge has no result: {error}.", step=scope.path) from None
        fields = {
            "model": self._config.model,
            "messages": [{"role": "user", "content": content}],
            "temperature": 0,
            "max_tokens": self._config.max_tokens,
        }
        encoded = {name: Raw(_encode(value)) for name, value in fields.items()}
        request = openai.chat_request(encoded, len(content))
        assert scope.call.models is not None
        answer = await scope.call.models.call(self._config.model, request, scope.call)
        if scope.call.step is not None:
            scope.call.step.endpoint = answer.endpoint
        return Output(answer=answer)

    def bound(self, estimate: Estimate) -> Bound:
        return estimate(self._config.model)


async def _question(scope: StepScope) -> str:
    """The text that the drafts answer: the step's `prompt`, or that of the request."""
    inputs = scope.inputs or {}
    try:
        return text_of(inputs["prompt"] if "prompt" in inputs else await scope.request.value("text"))
    except UnusableValueError as error:
        raise scope.fail(error) from None
