"""Models that decide whether two texts agree: by the cosine of their vectors, or by a verdict in both orders."""

from collections.abc import Awaitable, Callable

import msgspec
from msgspec import Raw

from adapters.answer import Answer
from adapters.errors import BackendError, CallerError
from adapters.requests import GenerateRequest, ModelRequest
from adapters.wire import decoding
from adapters.wire.openai import chat as openai
from config.schema.copies import TextTestConfig
from gateway.features.pipelines.answers import values_of
from gateway.traffic.generated_text import content_text
from policies.comparison.text import cosine
from policies.pipelines.judge import judge_prompt, of_both_orders, parse_verdict

MOST_TEXT = 64 * 1024
"""Signs of a text that a model decides."""
MAX_TOKENS = 512
_encode = msgspec.json.Encoder().encode
_messages = msgspec.json.Decoder(list[dict[str, object]]).decode
CallModel = Callable[[str, ModelRequest], Awaitable[Answer]]
"""Calls a model of the file on the operator's bill."""


class NoVerdict(Exception):
    """A model could not decide about two texts."""


async def accepts_by_model(test: TextTestConfig, question: str, first: str, second: str, call: CallModel) -> bool:
    """Whether the model of a test accepts two texts. Raises `NoVerdict`, and `InferenceError` if the model fails."""
    if max(len(first), len(second), len(question)) > MOST_TEXT:
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
    than `MOST_TEXT` bytes."""
    if not isinstance(request, GenerateRequest):
        return ""
    try:
        fields = request.fields
        given = fields.get("messages") or fields.get("prompt") or fields.get("input")
        if given is None or len(memoryview(given)) > MOST_TEXT:
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
