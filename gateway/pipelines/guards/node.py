"""The node `guard`: blocks requests and answers that its model classifies as forbidden."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from adapters.answer import Answer
from adapters.errors import ContentFiltered, InferenceError, StepFailed, Unsupported
from adapters.tensors import Tensor
from adapters.wire import decoding
from gateway.pipelines.guards.examiner import Examiner
from gateway.pipelines.guards.generated_stream import GuardedStream
from gateway.pipelines.guards.tensor_stream import GuardedTensorStream
from gateway.pipelines.scope import Bound, Estimate, Output, StepScope
from gateway.pipelines.values import UnusableValueError, Value, elements_of

_NOT_TEXT = frozenset(("logprobs", "finish_reason", "role", "id", "type", "index"))
"""Fields of a choice without a text of the model."""

_object = msgspec.json.Decoder(dict[str, Any]).decode


class GuardNode:
    """Examines the texts of the request, or of the answer of its subject, in windows that overlap.

    A `tolerant` guard lets everything pass while its model fails. A block is never tolerated.
    """

    def __init__(self, examiner: Examiner, subject: str, *, tolerant: bool) -> None:
        self._examiner = examiner
        self.subject = subject
        """The step whose answer is guarded; empty for a guard of the request."""
        self._tolerant = tolerant

    async def run(self, scope: StepScope) -> Output:
        if not self.subject:
            await self._examine(await scope.request.texts(), scope)
            return Output({})
        guarded = scope.outputs[self.subject]
        answer = guarded.answer
        try:
            if answer is not None and answer.body is None:
                return Output(answer=await self._stream(answer, scope).begun())
            await self._examine(await _texts(guarded), scope)
        except BaseException:
            await guarded.aclose()
            raise
        return guarded

    async def _examine(self, texts: list[str], scope: StepScope) -> None:
        try:
            await self._examiner.examine([text for text in texts if text], scope)
        except ContentFiltered:
            raise
        except InferenceError:
            if not self._tolerant:
                raise

    def _stream(self, answer: Answer, scope: StepScope) -> GuardedStream | GuardedTensorStream:
        if answer.form.wire in ("oip-http", "oip-grpc"):
            return GuardedTensorStream(answer, self._examiner, scope, tolerant=self._tolerant)
        if answer.form.wire != "openai" or "event-stream" not in answer.content_type:
            raise Unsupported("A guard of this model cannot read streams of this operation: request a whole answer.")
        return GuardedStream(answer, self._examiner, scope, tolerant=self._tolerant)

    def bound(self, estimate: Estimate) -> Bound:
        return self._examiner.bound(estimate)


async def _texts(output: Output) -> list[str]:
    """Every text of a whole answer that a client could read: contents, reasoning, refusals, tool calls, tensors."""
    answer = output.answer
    if answer is not None and answer.body is not None and answer.form.wire == "openai":
        return list(_strings(decoding.decode(_object, answer.body).get("choices")))
    return [text for value in (await output.read()).values() for text in _of_value(value)]


def _of_value(value: Value) -> Iterator[str]:
    if not isinstance(value, Tensor):
        yield from _strings(value)
    elif value.datatype == "BYTES":
        try:
            yield "\n".join(elements_of(value))
        except UnusableValueError as error:
            raise StepFailed(f"A guard cannot read the answer: {error}.") from None


def _strings(value: Any) -> Iterator[str]:
    """All texts inside a JSON value, except for the tokens of log-probabilities, which are the text again."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for each in value:
            yield from _strings(each)
    elif isinstance(value, dict):
        for name, each in value.items():
            if name not in _NOT_TEXT:
                yield from _strings(each)
