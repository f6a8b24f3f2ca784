"""Whole answers of every server behind guards. An answer that cannot be read does not leave."""

from collections.abc import Iterator
from typing import Any

import msgspec

from adapters.answer import Answer
from adapters.errors import CallerError, InferenceError
from adapters.requests import EmbeddingRequest, InferRequest, ModelRequest
from adapters.tensors import Inferred
from adapters.upstreams.inferred import answer_of, decode
from adapters.wire import decoding
from adapters.wire.openai.chat_reader import answer_text
from gateway.features.guards import texts
from gateway.features.guards.files import has_files
from gateway.features.guards.prompts import LARGE, beside, masked_all
from gateway.features.guards.verdicts import Examining


async def guarded(request: ModelRequest, answer: Answer, guard: Examining) -> Answer:
    """The answer that may leave: the same, or one with masks. Raises `ContentFiltered` and `Unsupported`."""
    body, form = answer.body, answer.form
    assert body is not None
    if not body or isinstance(request, EmbeddingRequest):
        return answer
    if form.wire in ("oip-http", "oip-grpc") and not form.generates:
        return await _tensors(request, answer, guard)
    if form.encoding or not answer.content_type.startswith("application/json"):
        raise guard.unreadable("answers of this kind")
    is_text = form.wire in ("openai", "anthropic", "gemini")
    if is_text and len(body) < LARGE and not texts.has_tokens(body) and not has_files(body) and guard.clears((body,)):
        return answer
    examine = _json if is_text else _app if form.wire == "app" else texts.masked_tensors
    try:
        masked = await beside(len(body), examine, body, guard.masked)
    except ValueError:
        raise guard.unreadable("an answer that is not JSON") from None
    if guard.acts and masked is not None:
        answer.body = masked
    return answer


def contents(answer: Answer) -> list[str]:
    """The texts of the choices of a chat or a completion, or of the same answer in its server's own format."""
    try:
        body = msgspec.json.decode(answer.body or b"")
        given = list(_contents(body, answer.form.wire))
    except (*decoding.MALFORMED_JSON, AttributeError, TypeError):
        return []
    return [
        text for each in given if isinstance(text := each if isinstance(each, str) else answer_text(each), str) and text
    ]


def _contents(body: Any, wire: str) -> Iterator[Any]:
    """The contents of an answer. Raises `AttributeError` and `TypeError` for one of another form."""
    if wire == "anthropic":
        yield "".join(block["text"] for block in body.get("content") or () if block.get("type") == "text")
    elif wire == "gemini":
        for candidate in body.get("candidates") or ():
            parts = (candidate.get("content") or {}).get("parts") or ()
            yield "".join(part.get("text", "") for part in parts if not part.get("thought"))
    elif "output" in body:
        for item in body["output"]:
            for part in item.get("content") or () if item.get("type") == "message" else ():
                yield part.get("text")
    else:
        for choice in body.get("choices") or ():
            yield (choice.get("message") or {}).get("content", choice.get("text"))


def _json(body: bytes, mask: texts.Mask) -> bytes | None:
    return texts.masked_json(body, mask, answers=True)


def _app(body: bytes, mask: texts.Mask) -> bytes | None:
    return texts.masked_json(body, mask, free=True)


async def _tensors(request: ModelRequest, answer: Answer, guard: Examining) -> Answer:
    try:
        inferred = await decode(answer)
        outputs = await beside(len(answer.body or b""), masked_all, inferred.outputs, guard)
    except CallerError as error:
        raise _passed_on(error, guard) from None
    parameters = texts.masked_strings(inferred.parameters, guard.masked)
    same = all(new is old for new, old in zip(outputs, inferred.outputs, strict=True))
    if (same and parameters is inferred.parameters) or not guard.acts:
        return answer
    if not isinstance(request, InferRequest):
        raise guard.unreadable("answers of this kind")
    made = Inferred(inferred.model_name, inferred.model_version, inferred.id, parameters, outputs)
    masked = await answer_of(request, made, answer.usage)
    masked.pool, masked.endpoint, masked.headers = answer.pool, answer.endpoint, answer.headers
    return masked


def _passed_on(error: CallerError, guard: Examining) -> InferenceError:
    """A block stays one; any other error is of the answer, not of the client."""
    return error if error.code == "content_filter" else guard.unreadable("the texts of the answer")
