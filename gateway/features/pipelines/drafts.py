"""Several drafts of one answer, written at once. The nodes `judge` and `agree` select one of them."""

from collections.abc import Coroutine, Iterable, Sequence
from typing import Any, Final

import msgspec
from msgspec import Raw

from adapters import offload
from adapters.errors import ClientGone, InferenceError, StepFailed
from adapters.wire.openai import chat as openai
from config.schema.pipelines.pipeline import AgreeConfig, DraftsConfig, JudgeConfig
from gateway.features.pipelines.each import for_each
from gateway.features.pipelines.scope import Bound, Estimate, Output, PipelineNode, StepScope, total
from gateway.features.pipelines.steps import run_part
from gateway.features.pipelines.values import UnusableValueError, text_of
from policies.pipelines.agreement import agreement, compared_parts
from policies.pipelines.judge import PROMPT, BestOf, Verdict, of_both_orders, parse_verdict

LONG_DRAFTS: Final = 2048
"""Characters of all drafts from which a worker process compares them: some alphabets take 2 µs each to normalise."""
LONG_PROMPT: Final = 256 * 1024
"""Characters of a question and two drafts from which a worker process makes the prompt."""
_encode = msgspec.json.Encoder().encode


class Drafts:
    """The nodes that write the drafts. Each draft is recorded like a step."""

    def __init__(self, config: DraftsConfig, nodes: Sequence[PipelineNode]) -> None:
        many = config.n > 1
        self._nodes = [
            (f"{draft.label}_{index + 1}" if many else draft.label, node)
            for draft, node in zip(config.of, nodes, strict=True)
            for index in range(config.n)
        ]

    @property
    def count(self) -> int:
        """The number of drafts."""
        return len(self._nodes)

    async def written(self, scope: StepScope) -> list[Output]:
        """The drafts in the order of the file, without those that failed. Raises the first failure if all failed."""
        return succeeded(await ends_of(run_part(node, scope, name, is_read=True) for name, node in self._nodes))

    def bound(self, estimate: Estimate) -> Bound:
        """The sum of all drafts."""
        return total((node for _, node in self._nodes), estimate)


async def ends_of(parts: Iterable[Coroutine[Any, Any, Output]]) -> list[Output | InferenceError]:
    """The outputs or the failures of parts that run at once. A cancellation, or another error, ends all of them."""

    async def one(part: Coroutine[Any, Any, Output]) -> Output | InferenceError:
        try:
            return await part
        except ClientGone:
            raise
        except InferenceError as error:
            return error

    waiting = list(parts)
    return await for_each(waiting, one, len(waiting))


def succeeded(ends: Sequence[Output | InferenceError]) -> list[Output]:
    """The outputs. Raises the first failure if there is none."""
    outputs = [end for end in ends if isinstance(end, Output)]
    if not outputs:
        raise next(end for end in ends if isinstance(end, InferenceError))
    return outputs


def text_of_draft(draft: Output) -> str:
    """The text of a draft; empty for one without text, such as tool calls."""
    text = draft.values.get("text")
    return text if isinstance(text, str) else ""


class AgreeNode:
    """Writes all drafts at once. A draft that fails agrees with none."""

    def __init__(self, config: AgreeConfig, nodes: Sequence[PipelineNode]) -> None:
        self._drafts = Drafts(config, nodes)
        self._by = config.by

    async def run(self, scope: StepScope) -> Output:
        drafts = await self._drafts.written(scope)
        texts = compared_parts([text_of_draft(draft) for draft in drafts], self._by)
        is_long = sum(map(len, texts)) >= LONG_DRAFTS
        consensus = await offload.run(offload.LARGE if is_long else 0, agreement, texts, self._by)
        chosen, share = drafts[consensus.representative], consensus.share * len(drafts) / self._drafts.count
        return Output({**chosen.values, "agreement": share}, chosen.answer)

    def bound(self, estimate: Estimate) -> Bound:
        return self._drafts.bound(estimate)


class JudgeNode:
    """Writes all drafts at once, then compares the best so far with the next one.

    A draft that fails is left out. Equal drafts are one. A comparison that fails has no verdict, and the earlier draft
    stays the best; without any verdict, `else` decides.
    """

    def __init__(self, config: JudgeConfig, nodes: Sequence[PipelineNode]) -> None:
        self._config = config
        self._drafts = Drafts(config, nodes)
        self._comparisons = (self._drafts.count - 1) * (2 if config.both_orders else 1)
        self._prompt = config.prompt or PROMPT

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

    def __init__(self, config: JudgeConfig, prompt: str, question: str, a: str, b: str) -> None:
        self._config = config
        self._prompt = prompt
        self._values = {"question": question, "a": a, "b": b}

    async def run(self, scope: StepScope) -> Output:
        characters = sum(map(len, self._values.values()))
        size = characters if characters >= LONG_PROMPT else 0
        messages = await offload.run(size, prompt_messages, self._prompt, self._values, scope.path)
        fields = {"model": self._config.model, "temperature": 0, "max_tokens": self._config.max_tokens}
        encoded = {name: Raw(_encode(value)) for name, value in fields.items()}
        request = openai.chat_request({**encoded, "messages": Raw(messages)}, len(messages))
        assert scope.call.models is not None
        answer = await scope.call.models.call(self._config.model, request, scope.call)
        if scope.call.step is not None:
            scope.call.step.endpoint = answer.endpoint
        return Output(answer=answer)

    def bound(self, estimate: Estimate) -> Bound:
        return estimate(self._config.model)


def prompt_messages(prompt: str, values: dict[str, str], step: str) -> bytes:
    """The messages of a request to a judge, as JSON. Raises `StepFailed` if the template has no result."""
    from adapters.wire.text.step_template import TemplateFailed  # needs an extra
    from gateway.features.pipelines.template import compiled

    try:
        content = compiled(prompt).render(values)
    except TemplateFailed as error:
        raise StepFailed(f"The prompt of the judge has no result: {error}.", step=step) from None
    return _encode([{"role": "user", "content": content}])


async def _question(scope: StepScope) -> str:
    """The text that the drafts answer: the step's `prompt`, or that of the request."""
    inputs = scope.inputs or {}
    try:
        return text_of(inputs["prompt"] if "prompt" in inputs else await scope.request.value("text"))
    except UnusableValueError as error:
        raise scope.fail(error) from None
