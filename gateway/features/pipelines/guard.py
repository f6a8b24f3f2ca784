"""The node `guard`: blocks requests and answers that its model classifies as forbidden."""

from collections.abc import Iterator

from adapters import offload
from adapters.answer import Answer
from adapters.errors import ContentFiltered, InferenceError, StepFailed, Unsupported
from adapters.tensors import Tensor
from adapters.upstreams.inferred import decode
from gateway.features.pipelines.bodies import answer_texts, examined_parts, strings
from gateway.features.pipelines.examined import Examined
from gateway.features.pipelines.examiner import Examiner
from gateway.features.pipelines.scope import Bound, Estimate, Output, StepScope
from gateway.features.pipelines.values import UnusableValueError, Value, elements_of
from gateway.traffic.guarded.chats import GuardedStream
from gateway.traffic.guarded.guard import GuardedReader
from gateway.traffic.guarded.tensors import GuardedTensorStream


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
            await _reduce(guarded)
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

    def _stream(self, answer: Answer, scope: StepScope) -> GuardedReader:
        guard = Examined(self._examiner, scope, tolerant=self._tolerant)
        if answer.form.wire in ("oip-http", "oip-grpc"):
            return GuardedTensorStream(answer, guard)
        if answer.form.wire != "openai" or "event-stream" not in answer.content_type:
            raise Unsupported("A guard of this model cannot read streams of this operation: request a whole answer.")
        return GuardedStream(answer, guard)

    def bound(self, estimate: Estimate) -> Bound:
        """All windows of the request, or of the longest answer."""
        if self.subject:
            return self._examiner.bound(estimate, estimate.output, estimate.choices)
        return self._examiner.bound(estimate, estimate.prompt, 1)


async def _texts(output: Output) -> list[str]:
    """Every text of a whole answer that a client could read: contents, reasoning, refusals, tool calls, tensors."""
    answer = output.answer
    if answer is not None and answer.body is not None and answer.form.wire == "openai":
        return await offload.parse(answer.body, answer_texts, answer.body)
    if answer is not None and answer.body is not None and answer.form.wire in ("oip-http", "oip-grpc"):
        inferred = await decode(answer)
        parameters = [inferred.parameters, *(tensor.parameters for tensor in inferred.outputs)]
        texts = [text for tensor in inferred.outputs for text in _of_value(tensor)]
        return [*texts, *(value for each in parameters for value in each.values() if isinstance(value, str))]
    return [text for value in (await output.read()).values() for text in _of_value(value)]


async def _reduce(output: Output) -> None:
    """Remove the unexamined parts of a whole generated answer: log-probabilities, and fields beside the choices."""
    answer = output.answer
    if answer is None or answer.body is None or answer.form.wire != "openai":
        return
    body = await offload.parse(answer.body, examined_parts, answer.body)
    if body is not None:
        await output.read()  # other steps may refer to the log-probabilities
        answer.body = body


def _of_value(value: Value) -> Iterator[str]:
    if not isinstance(value, Tensor):
        yield from strings(value)
    elif value.datatype == "BYTES":
        try:
            yield "\n".join(elements_of(value))
        except UnusableValueError as error:
            raise StepFailed(f"A guard cannot read the answer: {error}.") from None
