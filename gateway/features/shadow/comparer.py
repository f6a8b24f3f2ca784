"""Comparisons of answers: small ones at once, large ones in a worker process of their own, and texts by models."""

from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

import msgspec
from msgspec import Raw

from adapters import offload
from adapters.answer import Answer
from adapters.errors import BackendError, CallerError
from adapters.offload.jobs import CodecCall, CodecJob
from adapters.offload.worker_queue import WorkerQueue
from adapters.requests import GenerateRequest, ModelRequest
from adapters.wire import decoding
from adapters.wire.openai import chat as openai
from config.schema.config import CompareConfig
from config.schema.copies import TextTestConfig
from gateway.features.pipelines.answers import values_of
from gateway.features.recording.contents import AnswerPart, ResendSource, Settings, redacted, source_of
from gateway.features.shadow.answers import Comparison, WholeAnswer, compared
from gateway.traffic.generated_text import content_text
from policies.comparison.text import cosine
from policies.pipelines.judge import judge_prompt, of_both_orders, parse_verdict

MOST_TEXT = 2000
"""Signs of each text."""
_NO_DIGEST = b"sample"
"""The key of digests, which a sample has not."""
INLINE = 8 * 1024
"""Bytes of two answers that are compared at once."""
INLINE_EDITS = 2048
"""The same if the edits between two texts are counted, which takes a time in proportion to the square."""
MEMORY = 512 * 1024 * 1024
"""Bytes of the worker process."""
MOST_JUDGED = 64 * 1024
"""Signs of a text that a model decides."""
MAX_TOKENS = 512
_encode = msgspec.json.Encoder().encode
_messages = msgspec.json.Decoder(list[dict[str, object]]).decode
CallModel = Callable[[str, ModelRequest], Awaitable[Answer]]
"""Calls a model of the file on the operator's bill."""


class SampledTexts(NamedTuple):
    """A request and both answers, redacted and cut."""

    request: str
    primary: str
    shadow: str


def sampled_texts(
    source: ResendSource, first: WholeAnswer, second: WholeAnswer, redact: tuple[str, ...]
) -> SampledTexts:
    """Redact a request and its answers as a record, then cut them."""
    settings = Settings(redact, _NO_DIGEST, digest_only=False)
    contents = [redacted(source, _part(answer), settings) for answer in (first, second)]
    one, other = (_text(content.answer or b"", answer.form.header_length)
                  for content, answer in zip(contents, (first, second), strict=True))  # fmt: skip
    return SampledTexts(_text(contents[0].body, source.head), one, other)


def _part(answer: WholeAnswer) -> AnswerPart:
    is_events = answer.is_stream and answer.content_type.startswith("text/event-stream")
    binary = answer.form.wire in ("oip-grpc", "tfserving-grpc") or answer.form.encoding
    head = 0 if binary else answer.form.header_length
    return AnswerPart(answer.data, answer.content_type, head, answer.is_stream, is_events)


def _text(data: bytes, head: int | None) -> str:
    """The begin of a text. Of binary tensors only their description."""
    text = data[: head if head is not None else 4 * MOST_TEXT].decode(errors="replace")
    return text[:MOST_TEXT] + ("…" if len(text) > MOST_TEXT else "")


class AnswerComparer:
    """Compares two answers. The worker process serves nothing else, so that clients' bodies do not wait for it."""

    def __init__(self) -> None:
        self._queue = WorkerQueue(MEMORY)

    async def compare(self, config: CompareConfig, first: WholeAnswer, second: WholeAnswer) -> Comparison:
        """Compare two answers. Raises `InferenceError` if too many comparisons wait, or one
        takes too much memory."""
        if first.data == second.data and first.status == second.status and first.content_type == second.content_type:
            return Comparison({})
        size = len(first.data) + len(second.data)
        edits = any(test.edit is not None for test in config.text)
        if size < (INLINE_EDITS if edits else INLINE) and not first.form.encoding:
            return compared(first, second, config)
        comparison: Comparison = await self._run(CodecCall(compared, (first, second, config), {}))
        return comparison

    async def sample(
        self, request: ModelRequest, first: WholeAnswer, second: WholeAnswer, redact: tuple[str, ...]
    ) -> SampledTexts:
        """The redacted texts of a request and its answers. Raises `InferenceError` as `compare` does."""
        texts: SampledTexts = await self._run(CodecCall(sampled_texts, (source_of(request), first, second, redact), {}))
        return texts

    async def _run(self, call: CodecCall) -> Any:
        return await self._queue.run(CodecJob(call, offload.TENANT.get()))


class NoVerdict(Exception):
    """A model could not decide about two texts."""


async def accepts_by_model(test: TextTestConfig, question: str, first: str, second: str, call: CallModel) -> bool:
    """Whether the model of a test accepts two texts. Raises `NoVerdict`, and `InferenceError` if the model fails."""
    if max(len(first), len(second), len(question)) > MOST_JUDGED:
        raise NoVerdict
    if test.embedding is not None:
        return await _cosine(test.embedding, first, second, call) >= test.least
    assert test.judge is not None
    forward, backward = [
        await _verdict(test.judge, question, one, other, call) for one, other in ((first, second), (second, first))
    ]
    verdict = of_both_orders(parse_verdict(forward), parse_verdict(backward))
    if verdict is None:
        raise NoVerdict
    return verdict != "first"


def question_of(request: ModelRequest) -> str:
    """The text that an answer answers: of the last message of the user, or the prompt; empty for a conversation of more
    than `MOST_JUDGED` bytes."""
    if not isinstance(request, GenerateRequest):
        return ""
    try:
        fields = request.fields
        given = fields.get("messages") or fields.get("prompt") or fields.get("input")
        if given is None or len(memoryview(given)) > MOST_JUDGED:
            return ""
        if "messages" in fields:
            turns = [each for each in _messages(given) if each.get("role") == "user"]
            return content_text(turns[-1].get("content")) if turns else ""
        return content_text(msgspec.json.decode(given))
    except (CallerError, *decoding.MALFORMED_JSON):
        return ""


async def _cosine(model: str, first: str, second: str, call: CallModel) -> float:
    if not first.strip() or not second.strip():
        return -1.0  # the other text is not empty: equal texts need no model
    fields = {"model": Raw(_encode(model)), "input": Raw(_encode([first, second]))}
    answer = await call(model, openai.embedding_request(fields, len(first) + len(second)))
    vectors = (await values_of(answer)).get("embedding")
    if not isinstance(vectors, list) or len(vectors) != 2 or not all(isinstance(each, list) for each in vectors):
        raise BackendError("The model of embeddings has no vectors.", code="upstream_bad_response")
    return cosine(vectors[0], vectors[1])


async def _verdict(model: str, question: str, first: str, second: str, call: CallModel) -> str:
    content = judge_prompt(question, first, second)
    fields = {
        "model": model,
        "messages": [{"role": "user", "content": content}],
        "temperature": 0,
        "max_tokens": MAX_TOKENS,
    }
    encoded = {name: Raw(_encode(value)) for name, value in fields.items()}
    text = (await values_of(await call(model, openai.chat_request(encoded, len(content))))).get("text")
    return text if isinstance(text, str) else ""
